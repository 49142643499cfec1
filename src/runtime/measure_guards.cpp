#include "runtime/measure_guards.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "runtime/bind_arguments.h"
#include "runtime/compiled_callable.h"
#include "runtime/execute.h"

namespace reprise::runtime {

std::optional<double> measure_guards_ns(PyObject* compiled, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                                        int checks, bool takes_values) {
  const CallTarget target = find_call_target(compiled);
  if (target.function == nullptr || !PyFunction_Check(target.function) || checks < 1) return {};
  std::vector<PyObject*> all;
  if (target.self != nullptr) all.push_back(target.self);
  all.insert(all.end(), args, args + nargs + (kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames)));

  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(target.function));
  const Signature signature(code);
  BoundArguments bound;
  const Py_ssize_t count = nargs + (target.self != nullptr);
  if (!bound.bind(signature, reinterpret_cast<PyFunctionObject*>(target.function), all.data(), count, kwnames))
    return {};
  Place* place = find_context(compiled)->find_place(code, 0);
  if (place == nullptr) return {};

  for (EntryRef entry : place->entries()) {
    RunState state;
    if (!check_guards(entry->entry(), bound.slots(), state)) continue;
    std::vector<double> times;
    for (int i = 0; i < checks; ++i) {
      state.clear();
      const auto start = std::chrono::steady_clock::now();
      const bool holds = takes_values ? check_guards(entry->entry(), bound.slots(), state)
                                      : entry->entry().guards().check(bound.slots(), nullptr);
      if (!holds) return {};
      times.push_back(std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count());
    }
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    return times[times.size() / 2];
  }
  return {};
}

}  // namespace reprise::runtime
