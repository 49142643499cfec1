#include <nanobind/nanobind.h>

#include "base/options.h"
#include "bind/bindings.h"
#include "bind/vectorcall_arguments.h"
#include "driver/abilities.h"
#include "driver/requests.h"
#include "runtime/bind_arguments.h"
#include "runtime/compiled_callable.h"
#include "runtime/disabled_callable.h"
#include "runtime/hook.h"
#include "runtime/prepare.h"

namespace nb = nanobind;

namespace reprise::bind {
namespace {

PyObject* none_to_null(nb::handle object) { return object.is_none() ? nullptr : object.ptr(); }

nb::object steal_or_raise(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

void raise_unless_compiled(nb::handle object) {
  if (!runtime::is_compiled(object.ptr())) throw nb::type_error("expected a CompiledFunction");
}

nb::object bind_arguments(nb::handle function, nb::tuple args, nb::dict kwargs) {
  if (!PyFunction_Check(function.ptr())) throw nb::type_error("expected a Python function");
  VectorcallArguments call(args, kwargs);
  runtime::Signature signature(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function.ptr())));
  runtime::BoundArguments bound;
  if (!bound.bind(signature, reinterpret_cast<PyFunctionObject*>(function.ptr()), call.values(),
                  call.positional_count(), call.names())) {
    return nb::none();
  }
  nb::list result;
  for (int32_t i = 0; i < signature.slot_count; ++i) result.append(nb::handle(bound.slots()[i]));
  return nb::tuple(result);
}

// `with reprise.disable():`
class DisableContext {
 public:
  void enter() { runtime::enter_disabled(); }
  void leave(nb::args) { runtime::leave_disabled(); }
};

}  // namespace

void bind_callables(nb::module_& m) {
  if (runtime::prepare(m.ptr()) < 0) throw nb::python_error();

  m.def(
      "make_compiled",
      [](nb::object callable, const base::Options& options, nb::object backend, nb::object settings, nb::object type) {
        runtime::CompileSpec spec;
        spec.callable = callable.ptr();
        spec.options = options;
        spec.backend = backend.ptr();
        spec.settings = none_to_null(settings);
        spec.type = reinterpret_cast<PyTypeObject*>(none_to_null(type));
        return steal_or_raise(runtime::make_compiled(driver::requests(), spec));
      },
      nb::arg("callable"), nb::arg("options"), nb::arg("backend") = "native", nb::arg("settings").none() = nb::none(),
      nb::arg("type").none() = nb::none(),
      "A CompiledFunction. `settings`: arguments of reprise.compile, for copies. `type`: calls are those of "
      "type.__call__.");
  m.def(
      "make_disabled", [](nb::object callable) { return steal_or_raise(runtime::make_disabled(callable.ptr())); },
      nb::arg("callable"));
  m.def(
      "reset",
      [](nb::object compiled) {
        raise_unless_compiled(compiled);
        runtime::reset_compiled(compiled.ptr());
      },
      nb::arg("compiled"), "Drops the entries of a CompiledFunction; counters stay.");
  m.def("bind_arguments", &bind_arguments, nb::arg("function"), nb::arg("args"), nb::arg("kwargs"),
        "For tests: the parameters' values in the order of the function's locals, or None where binding refuses.");
  m.def("has_code_generator", &driver::has_code_generator);
  m.def("draws_many_at_a_time", &driver::draws_many_at_a_time);
  m.def("is_recording", [] { return driver::requests().is_recording(); });
  m.def("is_disabled", &runtime::is_disabled);
  m.def("is_hook_installed", &runtime::is_hook_installed);

  nb::class_<DisableContext>(m, "DisableContext")
      .def(nb::init<>())
      .def("__enter__", &DisableContext::enter)
      .def("__exit__", &DisableContext::leave);
}

}  // namespace reprise::bind
