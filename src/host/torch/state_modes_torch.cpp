#include "host/torch/state_modes_impl.h"

#include <c10/core/SafePyObject.h>
#include <torch/csrc/Device.h>

#include <algorithm>
#include <stack>
#include <utility>

#include "base/hash.h"
#include "host/cpython/pending_exception.h"

namespace reprise::host {

namespace {

using base::hash_combine;

template <typename Safe>
PyObject* object_of(const Safe& safe) noexcept {
  return safe.ptr(&safe.pyinterpreter());
}

// A new reference, or nullptr without an exception.
class Owned {
 public:
  explicit Owned(PyObject* object) noexcept : object_(object) {
    if (object == nullptr) PyErr_Clear();
  }
  ~Owned() { Py_XDECREF(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  PyObject* get() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  PyObject* object_;
};

// Borrowed; nullptr if the module is not imported.
PyObject* find_module(const char* name) noexcept {
  PyObject* const modules = PyImport_GetModuleDict();
  return modules ? PyDict_GetItemString(modules, name) : nullptr;
}

// Borrowed.
PyObject* find_in_module(const char* module_name, const char* name) noexcept {
  PyObject* const module = find_module(module_name);
  return module && PyModule_Check(module) ? PyDict_GetItemString(PyModule_GetDict(module), name) : nullptr;
}

uint64_t hash_address(uint64_t seed, const void* address) noexcept {
  return hash_combine(seed, reinterpret_cast<uint64_t>(address));
}

// The names that are needed while a default device is set, which is common; kept for the life of the process.
struct DeviceModeNames {
  PyObject* type = nullptr;    // torch.utils._device.DeviceContext, once imported
  PyObject* device = nullptr;  // "device"
};

const DeviceModeNames& find_device_mode_names() noexcept {
  static DeviceModeNames names;  // guarded by the GIL
  if (names.type == nullptr) [[unlikely]] {
    names.type = Py_XNewRef(find_in_module("torch.utils._device", "DeviceContext"));
    names.device = PyUnicode_InternFromString("device");
  }
  return names;
}

// Is it the mode that set_default_device() and `with device:` push? A new one is made at each `with`, so it is known
// by its device, not by its address.
bool is_device_mode(PyObject* mode) noexcept {
  return reinterpret_cast<PyObject*>(Py_TYPE(mode)) == find_device_mode_names().type;
}

uint64_t hash_device_mode(PyObject* mode) noexcept {
  PyObject** const dict = _PyObject_GetDictPtr(mode);
  PyObject* const device = dict && *dict ? PyDict_GetItem(*dict, find_device_mode_names().device) : nullptr;
  if (device == nullptr || !THPDevice_Check(device)) return hash_address(1, mode);
  const c10::Device value = reinterpret_cast<THPDevice*>(device)->device;
  return hash_combine(2, static_cast<uint64_t>(value.type()) << 8 | static_cast<uint8_t>(value.index()));
}

// -1 if it is no number.
int64_t call_for_number(PyObject* object, const char* method) noexcept {
  const Owned result(PyObject_CallMethod(object, method, nullptr));
  if (!result) return -1;
  const Owned number(PyNumber_Long(result.get()));
  if (!number) return -1;
  const int64_t value = PyLong_AsLongLong(number.get());
  if (value == -1) PyErr_Clear();
  return value;
}

// Kind, level, and for vmap batch size and randomness of each level, outermost first.
void summarise_functorch(ModeSummary& summary) noexcept {
  PyObject* const get_stack = find_in_module("torch._C._functorch", "get_interpreter_stack");
  PyObject* const vmap_type = find_in_module("torch._C._functorch", "CVmapInterpreterPtr");
  const Owned stack(get_stack ? PyObject_CallNoArgs(get_stack) : nullptr);
  if (!stack || !PyList_Check(stack.get())) return;
  const Py_ssize_t count = PyList_GET_SIZE(stack.get());
  uint64_t hash = static_cast<uint64_t>(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const level = PyList_GET_ITEM(stack.get(), i);
    hash = hash_combine(hash, static_cast<uint64_t>(call_for_number(level, "key")));
    hash = hash_combine(hash, static_cast<uint64_t>(call_for_number(level, "level")));
    const Owned vmap(vmap_type ? PyObject_CallOneArg(vmap_type, level) : nullptr);  // fails for other kinds
    if (!vmap) continue;
    hash = hash_combine(hash, static_cast<uint64_t>(call_for_number(vmap.get(), "batchSize")));
    hash = hash_combine(hash, static_cast<uint64_t>(call_for_number(vmap.get(), "randomness")));
  }
  summary.functorch_levels = hash;
  summary.functorch_level_count = static_cast<uint8_t>(std::min<Py_ssize_t>(count, 255));
}

// std::stack keeps its deque protected; copying it would touch reference counts.
struct HookStack : std::stack<std::pair<c10::SafePyObject, c10::SafePyObject>> {
  static const container_type& deque_of(const std::stack<std::pair<c10::SafePyObject, c10::SafePyObject>>& stack) {
    return stack.*&HookStack::c;
  }
};

template <typename Visit>
void visit_mode_objects(const ThreadTls& tls, Visit visit) noexcept {
  for (const auto& mode : (*tls.functions).*expose(FunctionTls_stack{}))
    visit(&ModeSummary::function_modes, object_of(*mode));
  for (const auto& mode : (*tls.dispatch).*expose(DispatchTls_stack{})) {
    visit(&ModeSummary::dispatch_modes, object_of(*mode));
  }
  for (const auto& mode : (*tls.dispatch).*expose(DispatchTls_infra{})) {
    // An empty place counts too: which kind of mode is set is part of the identity.
    visit(&ModeSummary::dispatch_modes, mode.has_value() ? object_of(**mode) : nullptr);
  }
  for (const auto& [pack, unpack] : HookStack::deque_of(tls.hooks->stack)) {
    visit(&ModeSummary::saved_tensor_hooks, object_of(pack));
    visit(&ModeSummary::saved_tensor_hooks, object_of(unpack));
  }
  if (const auto& group = tls.autograd->get_graph_exec_group(); group.has_value()) {
    visit(&ModeSummary::graph_exec_group, object_of(*group));
  }
}

}  // namespace

ModeSummary summarise_modes(const ThreadTls& tls) noexcept {
  const PendingException pending;
  ModeSummary summary;
  visit_mode_objects(tls, [&](uint64_t ModeSummary::* field, PyObject* object) {
    if (field == &ModeSummary::function_modes) {
      ++summary.function_mode_count;
      if (is_device_mode(object)) {
        summary.function_modes = hash_combine(summary.function_modes, hash_device_mode(object));
        return;
      }
    }
    if (field == &ModeSummary::dispatch_modes && object != nullptr) ++summary.dispatch_mode_count;
    if (field != &ModeSummary::graph_exec_group && object != nullptr) ++summary.user_mode_count;
    summary.*field = hash_address(summary.*field, object);
  });
  if (summary.dispatch_mode_count == 0) summary.dispatch_modes = 0;
  if (tls.keys->included().has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) summarise_functorch(summary);
  return summary;
}

std::vector<PyObject*> find_mode_objects(const ThreadTls& tls) {
  std::vector<PyObject*> objects;
  visit_mode_objects(tls, [&](uint64_t ModeSummary::* field, PyObject* object) {
    if (object == nullptr || (field == &ModeSummary::function_modes && is_device_mode(object))) return;
    objects.push_back(object);
  });
  return objects;
}

}  // namespace reprise::host
