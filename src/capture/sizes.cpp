// Tensors whose sizes no guard fixes, and ints that take other values in other calls. What Python reads of them is a
// node, not a constant; what it computes of them are nodes too, and a branch on the result is a fact of its own. So an
// entry fits all sizes that take the same way through the program.
#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "capture/recorder.h"
#include "capture/type_facts.h"
#include "host/torch/callables.h"
#include "host/torch/tensor.h"

namespace reprise::capture {

namespace {

/// Metadata that is the same for all sizes.
bool is_size_free(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
#define X(name) name,
#include "capture/size_free_methods.def"
  };
  return kNames.contains(name);
}

uint64_t all_dimensions(PyObject* tensor) {
  const size_t count = host::tensor_sizes(tensor).size();
  return count == 0 || count > 63 ? 0 : (uint64_t{1} << count) - 1;
}

/// What torch._dynamo.mark_dynamic left on a tensor.
uint64_t marked_dimensions(PyObject* tensor) {
  PyObject** dict = _PyObject_GetDictPtr(tensor);
  if (dict == nullptr || *dict == nullptr) return 0;
  PyObject* marked = PyDict_GetItemString(*dict, "_dynamo_dynamic_indices");
  uint64_t mask = 0;
  if (marked != nullptr && PyAnySet_Check(marked)) {
    for (size_t i = 0; i < host::tensor_sizes(tensor).size() && i < 63; i++) {
      PyObject* index = PyLong_FromSize_t(i);
      if (PySet_Contains(marked, index) == 1) mask |= uint64_t{1} << i;
      Py_DECREF(index);
    }
  }
  PyErr_Clear();
  return mask;
}

}  // namespace

uint64_t Recorder::find_varying(Operand o) {
  if (options_.varying == nullptr) return 0;
  const bool is_tensor = host::is_tensor(o.object);
  if (is_tensor && !host::is_plain_tensor(o.object)) return 0;
  if (!is_pre(o.id)) {  // sizes that depend on data
    const bool is_open = is_tensor && !is_constant(o.id) && !facts_[o.id].is_repeated;
    const uint64_t mask = is_open ? all_dimensions(o.object) : 0;
    any_varies_ |= mask != 0;
    return mask;
  }
  const trace::VaryingSources& varying = *options_.varying;
  uint64_t mask = 0;
  if (is_tensor && !host::tensor_sizes(o.object).empty()) {
    const bool is_parameter = Py_TYPE(o.object) != host::tensor_type();
    if (!is_parameter) mask |= marked_dimensions(o.object);
    if (varying.has_all_arguments && !is_parameter) {
      bool is_state = false;
      for (ValueId id = o.id; id >= 0 && !trace_->operands(id).empty(); id = trace_->operands(id)[0]) {
        PyObject* key = trace_->values[id].kind == NodeKind::DictItem ? trace_->values[id].object : nullptr;
        is_state |= key != nullptr && PyUnicode_Check(key) && PyUnicode_CompareWithASCIIString(key, "_buffers") == 0;
      }
      if (!is_state) mask |= all_dimensions(o.object);
    }
  }
  if (!varying.found.empty()) {
    const auto place = varying.found.find(trace::describe_value(*trace_, o.id));
    if (place != varying.found.end()) mask |= is_tensor ? place->second & all_dimensions(o.object) : 1;
  }
  any_varies_ |= mask != 0;
  return mask;
}

void Recorder::open_late_sizes(Operand o) {
  if (!active_ || o.id < 0 || options_.varying == nullptr || !host::is_plain_tensor(o.object)) return;
  if (is_pre(o.id) || !facts_[o.id].is_meta_tainted || all_dimensions(o.object) == 0) return;
  if (take_snapshot(true) >= 0) know_tensor(o);
}

// Ints that follow from data, as sizes of a result: its metadata follow from them, and code is made for given ones.
void Recorder::open_late_ints(Operand o) {
  Nesting nesting(&nesting_);
  if (nesting.is_deep() || !active_ || o.id < 0 || options_.varying == nullptr || is_constant(o.id)) return;
  if (PyTuple_Check(o.object) || PyList_Check(o.object)) {
    std::vector<ValueId> ids;
    if (!element_ids(o, &ids)) return;
    for (size_t i = 0; i < ids.size(); i++) {
      open_late_ints({PySequence_Fast_ITEMS(o.object)[i], ids[i]});
      if (ids[i] < 0 || !trace_->values[ids[i]].varies_with_data) continue;
      trace_->values[o.id].varies = trace_->values[o.id].varies_with_data = true;
    }
    return;
  }
  trace::Value& value = trace_->values[o.id];
  if (!PyLong_CheckExact(o.object) || value.is_pre || value.varies) return;
  value.varies = value.varies_with_data = value.is_late_size = true;
  any_varies_ = true;
}

bool Recorder::varies(ValueId id, int depth) const {
  if (!any_varies_ || id < 0 || depth > 4) return false;
  if (trace_->values[id].varies) return true;
  const HeapObject* object = facts_[id].heap;
  if (object == nullptr || !object->is_created) return false;
  for (ValueId element : object->elements) {
    if (varies(element, depth + 1)) return true;
  }
  return false;
}

bool Recorder::depends_on_data(ValueId id, int depth) const {
  constexpr int kMostDepth = 32;
  if (id < 0 || is_pre(id) || is_constant(id)) return false;
  const NodeKind kind = trace_->values[id].kind;
  const trace::Category category = trace::category_of(kind);
  const bool is_result = category == trace::Category::Tensor || category == trace::Category::Sync;
  if (is_result || depth > kMostDepth) return true;
  const bool is_computed = category == trace::Category::Py || kind == NodeKind::SequenceItem ||
                           kind == NodeKind::Tuple || kind == NodeKind::Slice;
  if (!is_computed) return false;
  const std::span<const ValueId> operands = trace_->operands(id);
  return std::any_of(operands.begin(), operands.end(),
                     [&](ValueId operand) { return depends_on_data(operand, depth + 1); });
}

bool Recorder::follows_from_sizes(NodeKind kind, std::span<const ValueId> operands, bool is_pre) const {
  if (!any_varies_) return false;
  const trace::Category category = trace::category_of(kind);
  // A number that only takes part in arithmetic decides about no size.
  const bool only_tensors = kind == NodeKind::TensorBinary || kind == NodeKind::TensorCompare;
  if (kind == NodeKind::TensorSize) return trace_->values[operands[0]].varies && (is_pre || !force_late_);
  bool is_any = false;
  for (ValueId id : operands) {
    if (id < 0) continue;
    if (only_tensors && facts_[id].type != nullptr && !host::is_plain_tensor_type(facts_[id].type)) continue;
    const bool does = varies(id);
    is_any |= does;
    const bool is_computed = category == trace::Category::Py || category == trace::Category::Read;
    if (is_computed && !does && !trace_->values[id].is_pre && !is_constant(id)) return false;
  }
  return is_any && category != trace::Category::Mutate;
}

void Recorder::note_resized(Operand tensor) {
  resized_.push_back(tensor);
  sizes_.clear();
}

// A tensor, or a tuple or list of them: what in-place operations change (`_version`, `grad_fn`) is another one now.
void Recorder::note_written(PyObject* tensors) {
  if (host::is_tensor(tensors)) written_storages_.insert(host::tensor_storage(tensors));
  if (!PyTuple_Check(tensors) && !PyList_Check(tensors)) return;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(tensors); i++) note_written(PySequence_Fast_ITEMS(tensors)[i]);
}

// What is known of a tensor is void if it is one that a call of the trace has given other sizes: it is none of those.
bool Recorder::know_not_reshaped(Operand tensor) {
  if (reshaped_.empty() || !is_pre(tensor.id)) return true;
  HeapObject* object = heap_of(tensor);
  return object != nullptr && check_different(object, reshaped_, object->reshapes_seen);
}

// Could it be one of the tensors whose sizes were written, in this call or in another one? A call may return its
// argument at other sizes (`t.contiguous()`).
bool Recorder::may_be_resized(Operand tensor) const {
  return std::any_of(resized_.begin(), resized_.end(), [&](const Operand& written) {
    if (written.object == tensor.object || written.id < 0) return true;
    const PyTypeObject *a = facts_[written.id].type, *b = facts_[tensor.id].type;
    if (a != nullptr && b != nullptr && a != b) return false;
    return !facts_[written.id].is_new || may_be_made_of(tensor.id, written.id);
  });
}

// `t.contiguous()` is `t` where its strides say so; they are open.
bool Recorder::may_be_another(Operand tensor) const {
  const auto is_same_or_new = [&](ValueId id) {
    if (id < 0 || trace_->values[id].kind != NodeKind::TensorCall || !trace_->values[id].varies) return false;
    const host::TorchCallable info = host::classify_torch_callable(trace_->values[trace_->operands(id)[0]].object);
    return info.is_torch && info.name != nullptr && std::string_view(info.name).ends_with(".contiguous");
  };
  if (is_same_or_new(tensor.id)) return true;
  for (size_t id = 0; id < trace_->values.size(); id++) {
    const auto value = static_cast<ValueId>(id);
    if (!is_same_or_new(value)) continue;
    const std::span<const ValueId> operands = trace_->operands(value);
    if (std::find(operands.begin() + 1, operands.end(), tensor.id) != operands.end()) return true;
  }
  return false;
}

// May the value be the one that was new at `source`, handed on by calls that return an argument?
bool Recorder::may_be_made_of(ValueId id, ValueId source) const {
  constexpr size_t kMostValues = 64;
  std::vector<ValueId> seen{id};
  for (size_t i = 0; i < seen.size(); i++) {
    if (seen[i] == source || seen.size() > kMostValues) return true;
    if (seen[i] < source || facts_[seen[i]].is_new) continue;  // older, or no argument of its call
    for (ValueId operand : trace_->operands(seen[i])) {
      if (std::find(seen.begin(), seen.end(), operand) == seen.end()) seen.push_back(operand);
    }
  }
  return false;
}

Operand Recorder::read_size(Operand tensor, host::SizeRead what, int32_t dimension) {
  const int32_t read = host::make_size_read(what, dimension);
  PyObject* value = host::read_tensor_size(tensor.object, read);
  if (value == nullptr || !active_ || tensor.id < 0) return {value, kNoValue};
  if (!trace_->values[tensor.id].varies) return new_constant(value);
  const uint64_t key = static_cast<uint64_t>(tensor.id) << 32 | static_cast<uint32_t>(read);
  if (const auto known = sizes_.find(key); known != sizes_.end()) {
    if (is_constant(known->second)) {
      Py_SETREF(value, Py_NewRef(facts_[known->second].constant));
    }
    return {value, known->second};
  }
  ValueId operands[] = {tensor.id};
  force_late_ = may_be_resized(tensor);
  const ValueId id = emit_typed(NodeKind::TensorSize, operands, value, nullptr, read);
  force_late_ = false;
  if (id >= 0) sizes_[key] = id;
  return {value, id};
}

Operand Recorder::read_shape(Operand tensor, host::SizeRead what) {
  const auto count = static_cast<Py_ssize_t>(host::tensor_sizes(tensor.object).size());
  PyObject* live = PyObject_CallMethod(tensor.object, what == host::SizeRead::Size ? "size" : "stride", nullptr);
  if (live == nullptr) return {};
  std::vector<ValueId> ids;
  for (Py_ssize_t i = 0; i < count; i++) {
    const Operand size = read_size(tensor, what, static_cast<int32_t>(i));
    Py_XDECREF(size.object);
    ids.push_back(size.id);
  }
  PyObject* subclass = PyTuple_CheckExact(live) ? nullptr : reinterpret_cast<PyObject*>(Py_TYPE(live));
  return new_tuple(live, ids, subclass);
}

bool Recorder::fix_size(Operand tensor, int32_t dimension) {
  if (!trace_->values[tensor.id].varies) return true;
  const Operand size = read_size(tensor, host::SizeRead::Size, dimension);
  const bool ok = size.object != nullptr && make_constant(size);
  Py_XDECREF(size.object);
  return ok;
}

bool Recorder::fix_sizes(Operand tensor) {
  const auto count = static_cast<int32_t>(host::tensor_sizes(tensor.object).size());
  for (int32_t i = 0; i < count; i++) {
    if (!fix_size(tensor, i)) return false;
    const Operand stride = read_size(tensor, host::SizeRead::Stride, i);
    const bool ok = stride.object != nullptr && make_constant(stride);
    Py_XDECREF(stride.object);
    if (!ok) return false;
  }
  return true;
}

Outcome Recorder::call_size_method(std::string_view name, const Operand* args, int n, Operand* out, bool* is_handled) {
  bool any_varies = false;
  for (int i = 0; i < n; i++) any_varies |= host::is_tensor(args[i].object) && trace_->values[args[i].id].varies;
  if (!any_varies || is_size_free(name)) return Outcome::Done;
  auto finish = [&](Operand value) {
    *is_handled = true;
    *out = value;
    return value.object != nullptr ? Outcome::Done : Outcome::Raised;
  };
  const Operand tensor = args[0];
  if (name == "size" || name == "stride") {
    const host::SizeRead what = name == "size" ? host::SizeRead::Size : host::SizeRead::Stride;
    if (n == 1) return finish(read_shape(tensor, what));
    const auto count = static_cast<int64_t>(host::tensor_sizes(tensor.object).size());
    if (n == 2 && PyLong_CheckExact(args[1].object) && make_constant(args[1])) {
      int64_t dimension = PyLong_AsLongLong(args[1].object);
      if (dimension < 0) dimension += count;
      if (dimension >= 0 && dimension < count) return finish(read_size(tensor, what, static_cast<int32_t>(dimension)));
    }
  }
  if (n == 1 && (name == "numel" || name == "nelement")) return finish(read_size(tensor, host::SizeRead::ElementCount));
  if (n == 1 && name == "storage_offset") return finish(read_size(tensor, host::SizeRead::StorageOffset));
  if (n == 1 && name == "is_contiguous") return finish(read_size(tensor, host::SizeRead::IsContiguous));
  for (int i = 0; i < n; i++) {
    if (!host::is_tensor(args[i].object) || fix_sizes(args[i])) continue;
    *is_handled = true;
    return Outcome::Stop;
  }
  return Outcome::Done;
}

// Element by element: each comparison is a fact of its own.
Outcome Recorder::compare_shapes(bool is_equal, Operand l, Operand r, Operand* out, bool* is_handled) {
  if (!varies(l.id) && !varies(r.id)) return Outcome::Done;
  std::vector<ValueId> left, right;
  if (!element_ids(l, &left) || !element_ids(r, &right)) return stop("a comparison of sequences of unknown contents");
  bool is_same = left.size() == right.size() && PyTuple_Check(l.object) == PyTuple_Check(r.object);
  for (size_t i = 0; is_same && i < left.size(); i++) {
    const Operand a{PySequence_Fast_ITEMS(l.object)[i], left[i]}, b{PySequence_Fast_ITEMS(r.object)[i], right[i]};
    if (a.id == b.id) continue;
    if (!trace_->values[a.id].varies && !trace_->values[b.id].varies) {
      if (!make_constant(a) || !make_constant(b)) return stop("a comparison of sequences");
      is_same = PyObject_RichCompareBool(a.object, b.object, Py_EQ) == 1;
      continue;
    }
    if (!is_number(a.object) || !is_number(b.object)) return stop("a comparison of sequences");
    Operand equal;
    if (const Outcome outcome = compare_values(Py_EQ, a, b, &equal); outcome != Outcome::Done) return outcome;
    is_same = equal.object == Py_True;
    const bool ok = !active_ || make_constant(equal);
    Py_DECREF(equal.object);
    if (!ok) return stop("a comparison of sequences that is known late");
  }
  *is_handled = true;
  *out = bool_constant(is_same == is_equal);
  return Outcome::Done;
}

}  // namespace reprise::capture
