// The extension module `frame_tests`: the host half's frame machinery for tests, without the rest of Reprise.
#include <Python.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "host/cpython/decode.h"
#include "host/cpython/frame.h"
#include "host/cpython/hook.h"
#include "host/cpython/rebuild.h"
#include "host/cpython/watch.h"
#include "modes.h"

namespace reprise::testing {
namespace {

// --- the hook
// ---------------------------------------------------------------------------------------------------------

// install(mode, probability=0, seed=1, at=0, code=None, value=None)
PyObject* install(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"mode", "probability", "seed", "at", "code", "value", nullptr};
  int mode = 0;
  double probability = 0;
  unsigned long long seed = 1, at = 0;
  PyObject *code = nullptr, *value = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|dKKOO", const_cast<char**>(names), &mode, &probability, &seed, &at,
                                   &code, &value)) {
    return nullptr;
  }
  Settings& settings = get_settings();
  settings.mode = static_cast<Mode>(mode);
  settings.probability = static_cast<uint32_t>(probability * 4294967295.0);
  settings.random = seed * 0x9E3779B97F4A7C15ull | 1;
  settings.countdown = at;
  Py_XSETREF(settings.code, code == Py_None ? nullptr : Py_XNewRef(code));
  Py_XSETREF(settings.value, Py_XNewRef(value));
  host::install_frame_hook(on_frame);
  Py_RETURN_NONE;
}

PyObject* uninstall(PyObject*, PyObject*) {
  host::remove_frame_hook();
  Settings& settings = get_settings();
  settings.mode = Mode::HookOnly;
  Py_CLEAR(settings.code);
  Py_CLEAR(settings.value);
  Py_RETURN_NONE;
}

// Counters since the last call.
PyObject* take_counters(PyObject*, PyObject*) {
  const Counters counters = std::exchange(get_counters(), {});
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "frames", counters.frames, "boundaries", counters.boundaries, "acted",
                       counters.acted, "rebuilt", counters.rebuilt, "skipped", counters.skipped);
}

// --- frames
// -----------------------------------------------------------------------------------------------------------

// snapshot(n): the n innermost frames of mode Snapshot as [(function, next_unit, [slot...])], outermost first; Ellipsis
// stands for NULL. Each waits for the callee of its instruction: operands are popped.
PyObject* snapshot(PyObject*, PyObject* args) {
  int count = 0;
  if (!PyArg_ParseTuple(args, "i", &count)) return nullptr;
  PyObject* result = PyList_New(0);
  for (interp::Activation* act = find_innermost_activation(); act != nullptr && count > 0; act = act->caller, --count) {
    PyObject* slots = PyList_New(0);
    for (PyObject** slot = act->locals; slot < act->stack_pointer - act->instruction->pops; ++slot) {
      PyList_Append(slots, *slot != nullptr ? *slot : Py_Ellipsis);
    }
    PyObject* item = Py_BuildValue("(OiN)", act->function, act->instruction->next_unit, slots);
    PyList_Insert(result, 0, item);
    Py_DECREF(item);
  }
  return result;
}

// Owns what a host::FrameSpec points to.
struct OwnedSpec {
  host::FrameSpec spec;
  std::vector<PyObject*> slots;
};

// (function, next_unit, [slot...][, mode, mode_value][, generator])
bool parse_spec(PyObject* tuple, OwnedSpec* owned) {
  PyObject *function, *slots, *mode_value = nullptr, *generator = nullptr;
  int next_unit, mode = 0;
  if (!PyArg_ParseTuple(tuple, "OiO!|iOO", &function, &next_unit, &PyList_Type, &slots, &mode, &mode_value,
                        &generator)) {
    return false;
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(slots); ++i) {
    PyObject* slot = PyList_GET_ITEM(slots, i);
    owned->slots.push_back(slot == Py_Ellipsis ? nullptr : Py_NewRef(slot));
  }
  host::FrameSpec& spec = owned->spec;
  spec.function = function;
  spec.next_unit = next_unit;
  spec.slots = owned->slots.data();
  spec.slot_count = static_cast<int32_t>(owned->slots.size());
  spec.mode = static_cast<host::ResumeMode>(mode);
  spec.mode_value = spec.mode == host::ResumeMode::PushValue ? Py_NewRef(mode_value) : nullptr;
  spec.generator = generator;
  return true;
}

PyObject* continue_with_hook(void*, PyThreadState* thread, host::Frame* frame, int throwflag) {
  return on_frame(thread, frame, throwflag);
}

// resume_chain(frames, handled=None, exception=None, driven=False): frames as parse_spec wants them, outermost first.
// `exception`: the innermost frame raises it. `driven`: frames go on in the installed mode.
PyObject* resume_chain(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"frames", "handled", "exception", "driven", nullptr};
  PyObject *frames, *handled = Py_None, *exception = Py_None;
  int driven = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|OOp", const_cast<char**>(names), &PyList_Type, &frames, &handled,
                                   &exception, &driven)) {
    return nullptr;
  }
  const auto count = static_cast<int32_t>(PyList_GET_SIZE(frames));
  std::vector<OwnedSpec> owned(count);
  std::vector<host::FrameSpec> specs;
  for (int32_t i = 0; i < count; ++i) {
    if (!parse_spec(PyList_GET_ITEM(frames, i), &owned[i])) return nullptr;
    specs.push_back(owned[i].spec);
  }
  const bool raises = exception != Py_None;
  if (raises) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  return host::resume_chain(PyThreadState_Get(), nullptr, specs.data(), count, handled == Py_None ? nullptr : handled,
                            raises, driven ? continue_with_hook : host::continue_default, nullptr);
}

constexpr int kCreated = PY_VERSION_HEX >= 0x030D0000 ? -3 : -2;  // FRAME_CREATED

// clone_generator(generator, empty=False): a new generator with the same contents; with `empty`, one of the same
// function that has not started.
PyObject* clone_generator(PyObject*, PyObject* args) {
  PyObject* generator;
  int empty = 0;
  if (!PyArg_ParseTuple(args, "O|p", &generator, &empty)) return nullptr;
  host::Frame* frame = host::find_generator_frame(generator);
  if (frame == nullptr) {
    PyErr_SetString(PyExc_ValueError, "no generator, or a finished one");
    return nullptr;
  }
  OwnedSpec owned;
  host::FrameSpec& spec = owned.spec;
  spec.function = host::get_function(frame);
  if (empty) return host::make_generator(spec, host::GeneratorState::Created, nullptr);
  for (int32_t i = 0; i < host::get_slot_count(frame); ++i) {
    owned.slots.push_back(Py_XNewRef(host::get_locals(frame)[i]));
  }
  spec.slots = owned.slots.data();
  spec.slot_count = static_cast<int32_t>(owned.slots.size());
  spec.next_unit = host::get_next_unit(frame);
  PyObject* handled = reinterpret_cast<PyGenObject*>(generator)->gi_exc_state.exc_value;
  const bool is_created = reinterpret_cast<PyGenObject*>(generator)->gi_frame_state == kCreated;
  return host::make_generator(spec, is_created ? host::GeneratorState::Created : host::GeneratorState::Suspended,
                              handled);
}

// --- decoded code
// -----------------------------------------------------------------------------------------------------

// decode(code): [(op, arg, unit, op_unit, next_unit, target, pops, object)], or the reason why not.
PyObject* decode(PyObject*, PyObject* code) {
  if (!PyCode_Check(code)) return PyErr_Format(PyExc_TypeError, "code object expected");
  host::CodeInfo* info = host::get_code_info(reinterpret_cast<PyCodeObject*>(code));
  if (info->undecodable != nullptr) return PyUnicode_FromString(info->undecodable);
  PyObject* result = PyList_New(0);
  for (int32_t i = 0; i < info->instruction_count; ++i) {
    const host::Instruction& in = info->instructions[i];
    PyObject* object = in.object != nullptr ? in.object : Py_None;
    PyObject* item = Py_BuildValue("(siiiiiiO)", host::get_op_name(in.op), in.arg, in.unit, in.op_unit, in.next_unit,
                                   in.target, in.pops, object);
    PyList_Append(result, item);
    Py_DECREF(item);
  }
  return result;
}

int deleted_clients = 0;

// attach(code): gives the code object a client; deleted() says how many clients have been deleted.
PyObject* attach(PyObject*, PyObject* code) {
  host::CodeInfo* info = host::get_code_info(reinterpret_cast<PyCodeObject*>(code));
  info->client = &deleted_clients;
  info->delete_client = [](void*) { ++deleted_clients; };
  Py_RETURN_NONE;
}

PyObject* deleted(PyObject*, PyObject*) { return PyLong_FromLong(deleted_clients); }

// --- watchers
// ---------------------------------------------------------------------------------------------------------

PyObject* has_tags(PyObject*, PyObject*) { return PyBool_FromLong(host::stamps_have_tags()); }
PyObject* has_watchers(PyObject*, PyObject*) { return PyBool_FromLong(host::stamps_have_watchers()); }
PyObject* watch_epoch(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(host::get_watch_epoch()); }

PyObject* watch(PyObject*, PyObject* object) {
  return PyBool_FromLong(PyType_Check(object) ? host::watch_type(reinterpret_cast<PyTypeObject*>(object))
                                              : host::watch_dict(object));
}

void delete_stamp(PyObject* capsule) { delete static_cast<host::HeapStamp*>(PyCapsule_GetPointer(capsule, nullptr)); }

PyObject* make_stamp(PyObject*, PyObject* object) {
  const host::HeapStamp stamp = PyType_Check(object) ? host::make_type_stamp(reinterpret_cast<PyTypeObject*>(object))
                                                     : host::make_dict_stamp(object);
  return PyCapsule_New(new host::HeapStamp(stamp), nullptr, delete_stamp);
}

PyObject* check_stamp(PyObject*, PyObject* capsule) {
  return PyBool_FromLong(host::check_stamp(*static_cast<host::HeapStamp*>(PyCapsule_GetPointer(capsule, nullptr))));
}

PyCFunction as_method(PyCFunctionWithKeywords function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"install", as_method(install), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"uninstall", uninstall, METH_NOARGS, nullptr},
    {"take_counters", take_counters, METH_NOARGS, nullptr},
    {"snapshot", snapshot, METH_VARARGS, nullptr},
    {"resume_chain", as_method(resume_chain), METH_VARARGS | METH_KEYWORDS, nullptr},
    {"clone_generator", clone_generator, METH_VARARGS, nullptr},
    {"decode", decode, METH_O, nullptr},
    {"attach", attach, METH_O, nullptr},
    {"deleted", deleted, METH_NOARGS, nullptr},
    {"has_tags", has_tags, METH_NOARGS, nullptr},
    {"has_watchers", has_watchers, METH_NOARGS, nullptr},
    {"watch", watch, METH_O, nullptr},
    {"watch_epoch", watch_epoch, METH_NOARGS, nullptr},
    {"make_stamp", make_stamp, METH_O, nullptr},
    {"check_stamp", check_stamp, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "frame_tests", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace reprise::testing

PyMODINIT_FUNC PyInit_frame_tests() {
  using reprise::testing::Mode;
  if (!reprise::host::prepare()) return nullptr;
  PyObject* module = PyModule_Create(&reprise::testing::module_definition);
  if (module == nullptr) return nullptr;
  const std::pair<const char*, Mode> modes[] = {
      {"HOOK_ONLY", Mode::HookOnly}, {"PLAIN", Mode::Plain},     {"SHADOW", Mode::Shadow},
      {"HAND_OVER", Mode::HandOver}, {"REBUILD", Mode::Rebuild}, {"REENTER", Mode::Reenter},
      {"FINISH", Mode::Finish},      {"RAISE", Mode::Raise},     {"SNAPSHOT", Mode::Snapshot},
  };
  for (const auto& [name, mode] : modes) PyModule_AddIntConstant(module, name, static_cast<int>(mode));
  return module;
}
