// Torch callables: one node each, executed whole at replay. What Python reads of results is folded where it follows
// from metadata that is guarded, and late where it depends on data.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "capture/recorder.h"
#include "capture/type_facts.h"
#include "capture/type_names.h"
#include "host/torch/callables.h"
#include "host/torch/leaves.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

namespace {

bool is_index_or_float(PyObject* o) { return PyLong_CheckExact(o) || PyFloat_CheckExact(o); }

/// Callables whose Python numbers are operands of arithmetic: their values decide nothing about shapes and types.
bool takes_scalars(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
#define X(name) name,
#include "capture/scalar_operands.def"
  };
  return kNames.contains(name);
}

/// PyTorch takes a tensor of one whole number where it wants a size, a dimension or a position.
bool may_be_size(PyObject* o) { return host::is_tensor(o) && host::is_whole_number(o); }

bool has_size(PyObject* o) {
  if (PyTuple_Check(o) || PyList_Check(o)) {
    PyObject** elements = PySequence_Fast_ITEMS(o);
    return std::any_of(elements, elements + PySequence_Fast_GET_SIZE(o), may_be_size);
  }
  return may_be_size(o);
}

/// Callables whose results have no size from a tensor of one whole number: it is data, or an index.
bool takes_numbers_as_data(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "stack",          "cat",        "where",       "copy_",         "index_copy_",
      "index_put_",     "index_add_", "index_fill_", "gather",        "embedding",
      "scatter_",       "isin",       "bucketize",   "cross_entropy", "searchsorted",
      "masked_scatter", "meshgrid",   "logical_and", "equal",         "allclose"};
  return kNames.contains(name);
}

/// Does the call give as many tensors for all sizes of its arguments? What unbind gives depends on a size.
bool has_fixed_count(std::string_view name, PyObject* result) {
  static const std::unordered_set<std::string_view> kNames = {
#define X(name) name,
#include "capture/fixed_counts.def"
  };
  return std::string_view(Py_TYPE(result)->tp_name).starts_with("torch.return_types.") || kNames.contains(name);
}

/// PyTorch's own functions and methods, which return an argument or a new tensor.
bool is_plain_function(std::string_view name) {
  const size_t dot = name.find('.');
  if (name.starts_with("torch._C._nn.")) return true;
  return (name.starts_with("torch.") || name.starts_with("Tensor.")) &&
         name.find('.', dot + 1) == std::string_view::npos;
}

/// Is it one of the arguments, or in one of them? Deeply nested: perhaps.
bool may_be_argument(PyObject* tensor, const Operand* args, int n) {
  for (int i = 0; i < n; i++) {
    PyObject* o = args[i].object;
    if (o == tensor || PyDict_Check(o)) return true;
    if (!PyTuple_Check(o) && !PyList_Check(o)) continue;
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); k++) {
      PyObject* element = PySequence_Fast_ITEMS(o)[k];
      if (element == tensor || PyTuple_Check(element) || PyList_Check(element)) return true;
    }
  }
  return false;
}

/// Does a call of run_backward write `.grad` of leaves? That of torch.autograd.grad does not.
bool accumulates_gradients(const Operand* args, int n, PyObject* kwnames) {
  const Py_ssize_t count = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t i = 0; i < count; i++) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "accumulate_grad") == 0)
      return args[n - count + i].object != Py_False;
  }
  return true;
}

/// Calls that put a level of torch.func or of forward differentiation on the stack, take it off, or say what may be
/// done under it.
bool is_level(std::string_view name) {
  return name.starts_with("torch._C._functorch.") || name == "torch._C._enter_dual_level" ||
         name == "torch._C._exit_dual_level";
}

bool has_name(PyObject* names, const char* name) {
  for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); i++) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, i), name) == 0) return true;
  }
  return false;
}

/// Functions whose ints say how large the result is.
bool takes_sizes(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {"new_zeros", "new_ones", "new_empty", "zeros",  "ones",
                                                              "empty",     "view",     "reshape",   "expand", "arange"};
  return kNames.contains(name);
}

/// Of the calls that change metadata, those that say something about gradients only.
bool keeps_sizes(std::string_view name) {
  return name == "requires_grad_" || name == "retain_grad" || name == "detach_";
}

/// Functions whose first argument may be a size.
bool starts_with_size(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "zeros",  "ones",     "empty",    "rand",  "randn",        "randint",      "randperm",
      "arange", "linspace", "logspace", "range", "tril_indices", "triu_indices", "eye"};
  return kNames.contains(name);
}

}  // namespace

namespace {

// `path`: the sequences on the way here, since one may contain itself.
bool holds_tensor(PyObject* o, std::vector<PyObject*>* path) {
  if (host::is_tensor(o)) return true;
  if (PySlice_Check(o)) {
    auto* slice = reinterpret_cast<PySliceObject*>(o);
    return host::is_tensor(slice->start) || host::is_tensor(slice->stop) || host::is_tensor(slice->step);
  }
  if (!(PyTuple_Check(o) || PyList_Check(o)) || std::find(path->begin(), path->end(), o) != path->end()) return false;
  path->push_back(o);
  bool is_found = false;
  for (Py_ssize_t i = 0; !is_found && i < PySequence_Fast_GET_SIZE(o); i++) {
    is_found = holds_tensor(PySequence_Fast_ITEMS(o)[i], path);
  }
  path->pop_back();
  return is_found;
}

}  // namespace

bool Recorder::has_tensor(Operand o) {
  std::vector<PyObject*> path;
  return holds_tensor(o.object, &path);
}

bool Recorder::is_meta_tainted(Operand o) {
  if (o.id < 0) return true;
  if (facts_[o.id].is_meta_tainted) return true;
  if (is_constant(o.id)) return false;
  if (o.object != Py_None && is_of_numpy(o.object)) return true;
  if (is_index_or_float(o.object))
    return !is_pre(o.id) && !trace_->values[o.id].varies;  // a late number may decide about a shape
  return (PyTuple_Check(o.object) || PyList_Check(o.object) || PySlice_Check(o.object)) && are_parts_tainted(o.id);
}

bool Recorder::are_parts_tainted(ValueId sequence) {
  Nesting nesting(&nesting_);
  if (nesting.is_deep()) return true;
  if (const HeapObject* object = facts_[sequence].heap; object != nullptr) {
    for (ValueId id : object->elements) {
      if (id < 0 || is_constant(id)) continue;
      if (facts_[id].is_meta_tainted || facts_[id].is_repeated) return true;
      PyTypeObject* type = facts_[id].type;
      if (!is_pre(id) && !trace_->values[id].varies &&
          (type == &PyLong_Type || type == &PyFloat_Type || type == nullptr))
        return true;
      const bool has_parts = type == &PyTuple_Type || type == &PyList_Type || type == &PySlice_Type;
      if (facts_[id].heap != nullptr && has_parts && are_parts_tainted(id)) return true;
    }
  }
  return false;
}

bool Recorder::is_operand_tainted(Operand o) { return !is_index_or_float(o.object) && is_meta_tainted(o); }

bool Recorder::prepare_torch_argument(Operand o, bool scalars_may_vary) {
  Nesting nesting(&nesting_);
  if (o.id < 0 || nesting.is_deep()) return false;
  PyObject* x = o.object;
  if (host::is_tensor(x)) {
    if (!facts_[o.id].is_meta_tainted) return know_tensor(o);
    // Of a call that is executed again: most likely as it was. Of sizes that depend on data: like it was, so that what
    // is computed of it follows from its sizes, and regions can take it.
    if (facts_[o.id].is_repeated) return take_snapshot(true) < 0 || know_tensor(o);
    open_late_sizes(o);
    return active_;
  }
  if (is_constant(o.id)) return true;
  if (is_index_or_float(x)) {
    if (!is_pre(o.id)) return facts_[o.id].type != nullptr || know_type(o);
    if (!know_type(o)) return false;
    return scalars_may_vary || trace_->values[o.id].varies || make_constant(o);
  }
  if (PyTuple_Check(x) || PyList_Check(x)) {
    std::vector<ValueId> ids;
    if (!element_ids(o, &ids)) return false;
    for (size_t i = 0; i < ids.size(); i++) {
      if (!prepare_torch_argument({PySequence_Fast_ITEMS(x)[i], ids[i]}, scalars_may_vary)) return false;
    }
    return true;
  }
  if (PySlice_Check(x)) return prepare_slice(o);
  if (can_be_constant(x)) return make_constant(o);
  if (PyDict_Check(x)) {
    std::vector<Operand> keys;
    std::vector<ValueId> values;
    if (!know_type(o) || !dict_ids(o, &keys, &values)) return false;
    for (size_t i = 0; i < keys.size(); i++) {
      if (!prepare_torch_argument({PyDict_GetItemWithError(x, keys[i].object), values[i]}, scalars_may_vary))
        return false;
    }
    return true;
  }
  if (PyFunction_Check(x) || PyMethod_Check(x)) return is_created(o.id) || know_type(o);
  if (facts_[o.id].heap != nullptr && facts_[o.id].heap->function_context >= 0) return false;  // another one at replay
  return is_created(o.id) || facts_[o.id].type != nullptr || know_type(o);
}

// A number, or a sequence of numbers: their values are facts from now on.
bool Recorder::fix_numbers(Operand o) {
  Nesting nesting(&nesting_);
  if (nesting.is_deep()) return false;
  if (is_constant(o.id)) return true;
  if (!PyTuple_Check(o.object) && !PyList_Check(o.object)) return make_constant(o);
  std::vector<ValueId> ids;
  if (!element_ids(o, &ids)) return false;
  for (size_t i = 0; i < ids.size(); i++) {
    if (!fix_numbers({PySequence_Fast_ITEMS(o.object)[i], ids[i]})) return false;
  }
  return true;
}

// The parts of a slice that the trace made were fixed, or are late numbers. Those of another one are read.
bool Recorder::prepare_slice(Operand o) {
  HeapObject* slice = heap_of(o);
  if (slice == nullptr) return false;
  if (slice->elements.size() == 3) return true;
  if (slice->is_created || !know_type(o)) return false;
  std::vector<ValueId> ids;
  static PyObject* const kParts[] = {PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PySlice_Type), "start"),
                                     PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PySlice_Type), "stop"),
                                     PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PySlice_Type), "step")};
  for (PyObject* descriptor : kParts) {
    Operand part;
    if (descriptor == nullptr || read_slot(descriptor, o, &part) != Outcome::Done) return false;
    Py_DECREF(part.object);
    if (part.id < 0 || host::is_tensor(part.object) || !know_type(part)) return false;
    if (!trace_->values[part.id].varies && !depends_on_data(part.id) && !make_constant(part)) return false;
    ids.push_back(part.id);
  }
  slice->elements = std::move(ids);
  return true;
}

// A torch function keeps no list that it gets: a list that the trace made or changed is given as a list of what it
// holds now. So it needs none of the changes, and a region can make it inside. The id of `o` where nothing is to be
// done.
ValueId Recorder::fix_lists(Operand o) {
  Nesting nesting(&nesting_);
  const bool is_list = PyList_CheckExact(o.object);
  if (nesting.is_deep() || o.id < 0 || is_constant(o.id) || !(is_list || PyTuple_CheckExact(o.object))) return o.id;
  HeapObject* object = facts_[o.id].heap;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(o.object);
  if (object == nullptr || !object->has_elements || static_cast<Py_ssize_t>(object->elements.size()) != count)
    return o.id;
  const std::vector<ValueId> elements = object->elements;
  std::vector<ValueId> fixed;
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject* element = PySequence_Fast_ITEMS(o.object)[i];
    if (host::is_tensor(element) && !host::is_plain_tensor(element)) return o.id;  // Python may see the list
    fixed.push_back(fix_lists({element, elements[i]}));
    if (fixed.back() < 0) return o.id;
  }
  const std::span<const ValueId> made_of = trace_->operands(o.id);
  // Nobody else has it: nobody will change it.
  const bool is_as_made =
      trace_->values[o.id].kind == NodeKind::List && std::ranges::equal(made_of, fixed) && Py_REFCNT(o.object) == 1;
  const bool is_changed = is_list ? !is_as_made && (object->is_created || object->is_effect_target) : fixed != elements;
  if (!is_changed) return o.id;
  const ValueId made = emit_typed(is_list ? NodeKind::List : NodeKind::Tuple, fixed, o.object);
  return made < 0 ? o.id : made;
}

Outcome Recorder::finish_torch_result(NodeKind kind, std::span<const ValueId> operands, PyObject* object, int32_t n,
                                      PyObject* stolen, bool is_tainted, Operand* out) {
  if (!active_) {
    *out = {stolen, kNoValue};
    return Outcome::Done;
  }
  bool is_value = PyBool_Check(stolen) || PyLong_Check(stolen) || PyFloat_Check(stolen) || PyComplex_Check(stolen) ||
                  PyUnicode_Check(stolen);
  if (is_value && kind == NodeKind::TensorCall) kind = NodeKind::SyncCall;
  ValueId id = emit(kind, operands, object, n);
  if (id >= 0) {
    trace_->values[id].runs_python = last_call_ran_python_;
    trace_->values[id].is_tainted = is_tainted;
    Facts& known = facts_[id];
    known.is_present = true;
    known.is_meta_tainted = is_tainted;
    // Types and structure follow from the arguments' metadata, except for None and bools, which a branch will ask for.
    if (stolen != Py_None && !PyBool_Check(stolen)) known.type = Py_TYPE(stolen);
    if (host::is_plain_tensor(stolen)) known.is_meta_known = !is_tainted;
    if (PyTuple_Check(stolen) || PyList_Check(stolen))
      known.is_length_known = !is_tainted && !trace_->values[id].varies;
  }
  if (stolen == Py_None && kind == NodeKind::TensorCall) {
    *out = {stolen, constant_id(Py_None)};
    return Outcome::Done;
  }
  if (stolen == Py_None && kind == NodeKind::TensorGetAttribute && id >= 0 && !is_tainted) {
    // After a backward or a store in the trace, whether a gradient is there follows from the trace.
    *out = {stolen, constant_id(Py_None)};
    return Outcome::Done;
  }
  *out = {stolen, id};
  return Outcome::Done;
}

Outcome Recorder::call_torch(Operand callable, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  host::TorchCallable info = host::classify_torch_callable(callable.object);
  std::string name = info.is_torch && info.name != nullptr ? info.name : callable_name(callable.object);
  if (info.is_torch && name == "torch._C._FunctionBase.apply" && kwnames == nullptr) {
    bool is_handled = false;
    const Outcome outcome = call_autograd_function(callable, args, n, out, &is_handled);
    if (is_handled) return outcome;
    if (!active_) return Outcome::Stop;
  }
  const std::string_view function_name = last_part(name);
  bool scalars_may_vary = takes_scalars(function_name);
  std::vector<ValueId> operands{callable.id};
  bool any_tensor = false, is_tainted = false, all_plain = true;
  for (int i = 0; i < n; i++) {
    if (info.is_torch && info.kind == host::TorchCallableKind::Metadata) open_late_sizes(args[i]);
    if (!prepare_torch_argument(args[i], scalars_may_vary)) {
      return stop(UnsupportedCode::UnmodelledOperation, "an argument of " + name + " of unknown origin or contents");
    }
    const bool is_fixed = info.is_torch && (info.kind == host::TorchCallableKind::Tensor ||
                                            info.kind == host::TorchCallableKind::DataDependent);
    if (is_fixed && takes_sizes(function_name)) open_late_ints(args[i]);
    operands.push_back(is_fixed ? fix_lists(args[i]) : args[i].id);
    any_tensor = any_tensor || has_tensor(args[i]);
    if (host::is_tensor(args[i].object) && !host::is_plain_tensor(args[i].object)) all_plain = false;
    is_tainted = is_tainted || (scalars_may_vary ? is_operand_tainted(args[i]) : is_meta_tainted(args[i]));
  }
  if (info.is_torch && info.kind == host::TorchCallableKind::Opaque) return call_opaque(callable);
  // Functorch levels and modes give torch calls another meaning; frames can't be left inside them.
  bool is_mode =
      info.is_torch && info.kind == host::TorchCallableKind::StateWrite &&
      (name.find("_functorch") != std::string::npos || name.find("_mode") != std::string::npos ||
       name.find("torch_function_stack") != std::string::npos ||
       name.find("torch_dispatch_stack") != std::string::npos || name.find("dual_level") != std::string::npos ||
       name.find("saved_tensors_default_hooks") != std::string::npos) &&
      !(is_in_transform_ && is_level(name));
  if (is_mode) return call_opaque(callable);
  host::TorchCallableKind kind = info.is_torch ? info.kind : host::TorchCallableKind::Sync;
  if (kind == host::TorchCallableKind::Metadata && all_plain && !is_tainted) {
    bool is_handled = false;
    const Outcome outcome = call_size_method(function_name, args, n, out, &is_handled);
    if (is_handled) return outcome;
  }
  if (kind == host::TorchCallableKind::MutatesMetadata && n > 0 && may_be_another(args[0])) {
    return stop("new sizes of a tensor that is or is not another one, as strides decide");
  }
  // Folded below: `torch.Size(x.shape)` is another one for other sizes.
  bool has_open_numbers = is_tainted;
  for (int i = 0; i < n; i++) has_open_numbers = has_open_numbers || varies(args[i].id);
  if (has_open_numbers && !any_tensor &&
      (kind == host::TorchCallableKind::Metadata || kind == host::TorchCallableKind::StateRead)) {
    for (int i = 0; i < n; i++) {
      if (!fix_numbers(args[i]))
        return stop(UnsupportedCode::OpaqueCall, "a call of " + name + " with numbers that are known late");
    }
  }
  HeapObject* reshaped = nullptr;
  host::TensorMetaRef shape_before;
  if (kind == host::TorchCallableKind::MutatesMetadata && n > 0 && host::is_tensor(args[0].object) &&
      is_pre(args[0].id)) {
    reshaped = heap_of(args[0]);
    if (reshaped == nullptr) return stop("new sizes of a tensor of unknown origin");
    shape_before = host::make_tensor_meta(args[0].object);
  }
  const bool writes_gradients = kind == host::TorchCallableKind::Backward && accumulates_gradients(args, n, kwnames);
  host::LeavesOfGraph leaves;
  for (int i = 0; writes_gradients && i < n && leaves.is_empty(); i++) leaves = host::LeavesOfGraph(args[i].object);
  PyObject* result = call_live_c(callable.object, args, n, kwnames);
  const bool saw_callback = last_call_ran_python_;
  if (result == nullptr) {
    // "There is no driver" is the answer to a question about devices, and the same at each call.
    const bool is_question = kind == host::TorchCallableKind::Sync || kind == host::TorchCallableKind::StateRead;
    if (active_ && is_question && n == 0 && !saw_callback && host::lacks_device(info)) {
      exception_is_recorded_ = true;
    } else if (active_) {
      lose("a call of " + name + " that raised");
    }
    return Outcome::Raised;
  }
  if (!active_) {
    *out = {result, kNoValue};
    return Outcome::Done;
  }
  using Kind = host::TorchCallableKind;
  const bool has_known_arguments = !is_tainted && all_plain;
  if (any_tensor && !scalars_may_vary && !takes_numbers_as_data(function_name) &&
      !(host::is_plain_tensor(result) && host::tensor_sizes(result).empty())) {
    for (int i = 0; i < n && !is_tainted; i++) {
      const bool may_be = i > 0 || !host::is_tensor(args[0].object) || starts_with_size(function_name);
      is_tainted = may_be && has_size(args[i].object);
    }
  }
  bool is_folded = kind == Kind::Metadata && !is_tainted && all_plain && !host::is_tensor(result);
  if (!any_tensor && (kind == Kind::StateRead || kind == Kind::Metadata) && !host::is_tensor(result)) is_folded = true;
  const bool is_constant_result = result != Py_None && can_be_constant(result);
  if (!any_tensor && kind == Kind::Tensor && is_constant_result && !has_open_numbers) is_folded = true;
  if (is_folded) {
    *out = new_constant(result);
    if (saw_callback) forget_after_callback();
    return Outcome::Done;
  }
  if (kind == Kind::Metadata && host::is_tensor(result)) kind = Kind::Tensor;  // t.type(dtype)
  if (kind == Kind::DataDependent) {
    std::vector<PyObject*> values;
    for (int i = 0; i < n; i++) values.push_back(args[i].object);
    if (host::has_data_dependent_sizes(info, values.data(), values.size(), kwnames)) is_tainted = true;
  }
  if (!all_plain) is_tainted = true;  // a subclass decides in Python
  NodeKind node = NodeKind::TensorCall;
  if (kind == Kind::Sync) node = NodeKind::SyncCall;
  if (kind == Kind::StateWrite || (!any_tensor && result == Py_None)) node = NodeKind::StateCall;
  if (kind == Kind::Metadata) node = NodeKind::SyncCall;
  if (kind == Kind::StateRead) node = NodeKind::SyncCall;
  if (is_in_transform_ && node == NodeKind::StateCall && is_level(name)) {
    const ValueId id = emit(NodeKind::StateCall, operands, kwnames, 0);
    if (id >= 0) trace_->values[id].is_level = true;
    *out = new_constant(result);  // levels are counted from none
    return Outcome::Done;
  }
  Outcome outcome = finish_torch_result(node, operands, kwnames, 0, result, is_tainted, out);
  if (active_ && out->id >= 0 && node == NodeKind::TensorCall && has_known_arguments && !saw_callback) {
    trace_->values[out->id].is_data_sized = is_tainted;
    if (PySequence_Check(result) && !host::is_tensor(result) && has_fixed_count(function_name, result))
      facts_[out->id].is_length_known = true;
  }
  // A new tensor is no other object, and its attributes are those that the trace gives it. `t.to(...)` may be t.
  if (active_ && out->id >= 0 && node == NodeKind::TensorCall && all_plain && host::is_plain_tensor(result) &&
      (kind == Kind::Tensor || kind == Kind::DataDependent) && is_plain_function(name) && !is_tainted &&
      !trace_->values[out->id].varies) {
    if (!may_be_argument(result, args, n)) {
      facts_[out->id].is_new = true;
    } else if (result == args[0].object && (facts_[args[0].id].is_new || facts_[args[0].id].heap != nullptr)) {
      facts_[out->id].heap = heap_of(args[0]);
    }
  }
  if (kind == Kind::MutatesMetadata && n > 0 && !keeps_sizes(function_name)) note_resized(args[0]);
  if (reshaped != nullptr && !(*host::make_tensor_meta(args[0].object) == *shape_before)) reshaped_.push_back(reshaped);
  if (kind == Kind::MutatesMetadata && n > 0 && args[0].id >= 0 && active_) {
    // What follows from the arguments' metadata still follows; only a pre fact must not be used for the new state.
    facts_[args[0].id].is_meta_known = true;
    if (out->object == args[0].object) out->id = args[0].id;
  }
  if (kind == Kind::Tensor || kind == Kind::DataDependent || kind == Kind::MutatesMetadata) {
    const host::CallEffects effects = host::find_effects(info);
    const bool writes_any = !effects.is_known || has_name(kwnames, "out");
    for (int i = 0; i < n && (writes_any || (effects.writes_first && i == 0)); i++) note_written(args[i].object);
  }
  if (kind == Kind::Backward && (saw_callback || writes_gradients)) {
    grads_written_ = true;
    leaves.add_written(&reached_leaves_);
  }
  if (saw_callback) forget_after_callback();
  return outcome;
}

}  // namespace reprise::capture
