#include "host/torch/callables.h"

#include <ATen/Context.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "host/torch/state_word.h"
#include "host/torch/tensor.h"

namespace reprise::host {

namespace {

using std::string_view;
using Kind = TorchCallableKind;

// --- the rows
// ----------------------------------------------------------------------------------------------------------

enum SizeRule : uint8_t { Always, HasOneArgument, HasNoClassCount, HasTensorRepeats, HasSecondTensor, HasMaskIndex };

struct Row {
  string_view name;
  Kind kind;
  SizeRule rule;
};

constexpr Row kRows[] = {
#define ROW(name, kind) {name, Kind::kind, Always},
#define ROW_IF(name, kind, rule) {name, Kind::kind, rule},
#include "host/torch/torch_callables.def"
};

constexpr Row kNamespaces[] = {
#define NAMESPACE(prefix, kind) {prefix, Kind::kind, Always},
#include "host/torch/torch_callables.def"
};

// Where generated operators live: "*.x" means x in each of these.
constexpr string_view kOperatorPrefixes[] = {
    "Tensor.",
    "torch.",
    "aten::",
    "torch._C._nn.",
    "torch._C._fft.",
    "torch._C._linalg.",
    "torch._C._special.",
    "torch._C._sparse.",
    "torch._C._nested.",
};

// Modules with callables that have rows; those of others are found by their __module__ when they are met.
constexpr const char* kModules[] = {
    "torch._C._nn",     "torch._C._fft",    "torch._C._linalg",    "torch._C._special",
    "torch._C._sparse", "torch._C._nested", "torch._C._functorch", "torch._C._autograd",
};

bool is_torch_name(string_view name) { return name == "torch" || name.starts_with("torch."); }

// --- finding things through the C API
// ----------------------------------------------------------------------------------

string_view text_of_object(PyObject* object) {
  if (object == nullptr || !PyUnicode_Check(object)) return {};
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(object, &size);
  if (data == nullptr) PyErr_Clear();
  return data ? string_view(data, static_cast<size_t>(size)) : string_view();
}

// Borrowed; nullptr if the module is not imported.
PyObject* find_module_dict(const char* name) {
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const module = modules ? PyDict_GetItemString(modules, name) : nullptr;
  return module && PyModule_Check(module) ? PyModule_GetDict(module) : nullptr;
}

PyTypeObject* find_type(const char* module, const char* name) {
  PyObject* const dict = find_module_dict(module);
  PyObject* const type = dict ? PyDict_GetItemString(dict, name) : nullptr;
  return type && PyType_Check(type) ? reinterpret_cast<PyTypeObject*>(type) : nullptr;
}

bool is_method_descriptor(PyObject* object) {
  return Py_IS_TYPE(object, &PyMethodDescr_Type) || Py_IS_TYPE(object, &PyClassMethodDescr_Type);
}

// What makes two objects the same callable: bound builtins and descriptors share their PyMethodDef. All types share
// one PyMethodDef for __new__.
const void* key_of(PyObject* callable) {
  if (PyCFunction_Check(callable)) {
    const PyMethodDef* const def = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
    return string_view(def->ml_name) == "__new__" ? static_cast<const void*>(callable) : def;
  }
  if (is_method_descriptor(callable)) return reinterpret_cast<PyMethodDescrObject*>(callable)->d_method;
  return callable;
}

// --- the table
// ---------------------------------------------------------------------------------------------------------

class Table {
 public:
  static Table* make();

  TorchCallable classify(PyObject* callable);
  TensorAttribute classify_attribute(PyObject* attribute) const;
  std::vector<const char*> find_unresolved() const;

 private:
  struct Resolution {
    Kind kind;
    SizeRule rule;
  };

  void add_members(PyTypeObject* type, const std::string& prefix);
  void add_module(PyObject* dict, const std::string& prefix);
  TorchCallable add(PyObject* callable, std::string name);
  TorchCallable add(PyObject* callable, std::string name, Resolution resolution);
  Resolution resolve(string_view name);
  const Row* find_row(const std::unordered_map<string_view, const Row*>& rows, string_view name);
  TorchCallable classify_new(PyObject* callable);
  TorchCallable classify_operator(PyObject* op, const char* name_attribute);

  std::unordered_map<string_view, const Row*> rows_;           // by full name
  std::unordered_map<string_view, const Row*> operator_rows_;  // "*.x", by x
  std::unordered_set<const Row*> used_rows_;
  std::unordered_map<const void*, TorchCallable> by_key_;  // by key_of(); holds a reference to one callable of each
  std::unordered_map<string_view, TensorAttribute> attributes_;
  std::deque<std::string> names_;
  PyTypeObject* base_ = nullptr;
  PyTypeObject* op_overload_ = nullptr;
  PyTypeObject* op_packet_ = nullptr;
};

Table* Table::make() {
  PyObject* const c_dict = find_module_dict("torch._C");
  PyObject* const torch_dict = find_module_dict("torch");
  PyTypeObject* const functions = find_type("torch._C", "_VariableFunctionsClass");
  if (c_dict == nullptr || torch_dict == nullptr || functions == nullptr || tensor_type() == nullptr) return nullptr;

  auto* const table = new Table;
  table->base_ = tensor_type()->tp_base;
  table->op_overload_ = find_type("torch._ops", "OpOverload");
  table->op_packet_ = find_type("torch._ops", "OpOverloadPacket");
  for (const Row& row : kRows) {
    const bool is_operator = row.name.starts_with("*.");
    (is_operator ? table->operator_rows_ : table->rows_).emplace(row.name.substr(is_operator ? 2 : 0), &row);
  }
  table->by_key_.reserve(8192);
#define ATTRIBUTE(name, read, write) \
  table->attributes_[#name] = {TensorAttributeKind::read, TensorAttributeKind::write};
#include "host/torch/tensor_attributes.def"

  // Of several names of one callable the first counts.
  table->add_members(table->base_, "Tensor.");
  table->add_members(functions, "torch.");
  table->add_module(c_dict, "torch._C.");
  for (const char* const module : kModules) {
    if (PyObject* const dict = find_module_dict(module)) table->add_module(dict, std::string(module) + ".");
  }
  table->add_module(torch_dict, "torch.");
  // The nodes of the autograd graph share one list of methods.
  for (const char* const name : {"UndefinedGrad", "AccumulateGrad"}) {
    PyObject* const module = PyDict_GetItemString(c_dict, "_functions");
    PyObject* const type =
        module && PyModule_Check(module) ? PyDict_GetItemString(PyModule_GetDict(module), name) : nullptr;
    if (type != nullptr && PyType_Check(type)) table->add_members(reinterpret_cast<PyTypeObject*>(type), "Node.");
  }
  table->add(reinterpret_cast<PyObject*>(tensor_type()), "torch.Tensor");
  return table;
}

void Table::add_module(PyObject* dict, const std::string& prefix) {
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &name, &value)) {
    const std::string full = prefix + std::string(text_of_object(name));
    // Modules also hold what they import from elsewhere.
    if (PyCFunction_Check(value)) {
      PyObject* const module = reinterpret_cast<PyCFunctionObject*>(value)->m_module;
      if (module == nullptr || is_torch_name(text_of_object(module))) add(value, full);
    } else if (PyType_Check(value)) {
      auto* const type = reinterpret_cast<PyTypeObject*>(value);
      // Types on the heap are pybind's in torch._C, and Python's classes, which are no C callables, in torch.
      const bool is_heap_type = PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE);
      const bool is_ours = is_heap_type ? prefix != "torch." : is_torch_name(type->tp_name);
      if (!is_ours || type == base_) continue;
      add(value, full);
      add_members(type, full + ".");
    }
  }
}

void Table::add_members(PyTypeObject* type, const std::string& prefix) {
  if (type->tp_dict == nullptr) return;  // core types of CPython 3.12+
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(type->tp_dict, &position, &name, &value)) {
    const std::string full = prefix + std::string(text_of_object(name));
    if (PyCFunction_Check(value) || is_method_descriptor(value) || Py_IS_TYPE(value, &PyWrapperDescr_Type)) {
      add(value, full);
    } else if (PyInstanceMethod_Check(value) && PyCFunction_Check(PyInstanceMethod_GET_FUNCTION(value))) {
      add(PyInstanceMethod_GET_FUNCTION(value), full);  // pybind's methods
      add(value, full);
    } else if (Py_IS_TYPE(value, &PyStaticMethod_Type)) {
      PyObject* const function = PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name);
      if (function != nullptr && PyCFunction_Check(function)) add(function, full);
      if (function == nullptr) PyErr_Clear();
      Py_XDECREF(function);
    }
  }
}

const Row* Table::find_row(const std::unordered_map<string_view, const Row*>& rows, string_view name) {
  const auto found = rows.find(name);
  if (found == rows.end()) return nullptr;
  used_rows_.insert(found->second);
  return found->second;
}

Table::Resolution Table::resolve(string_view name) {
  if (const Row* const row = find_row(rows_, name)) return {row->kind, row->rule};
  for (const string_view prefix : kOperatorPrefixes) {
    if (!name.starts_with(prefix)) continue;
    if (const Row* const row = find_row(operator_rows_, name.substr(prefix.size()))) return {row->kind, row->rule};
  }
  // A member is as its type: __enter__ of a guard.
  const size_t dot = name.rfind('.');
  if (dot != string_view::npos) {
    if (const Row* const row = find_row(rows_, name.substr(0, dot))) return {row->kind, row->rule};
  }
  const Row* best = nullptr;
  for (const Row& row : kNamespaces) {
    if (name.starts_with(row.name) && (best == nullptr || row.name.size() > best->name.size())) best = &row;
  }
  return {best ? best->kind : Kind::Opaque, Always};
}

TorchCallable Table::add(PyObject* callable, std::string name) {
  const Resolution resolution = resolve(name);
  return add(callable, std::move(name), resolution);
}

TorchCallable Table::add(PyObject* callable, std::string name, Resolution resolution) {
  const auto [place, is_new] = by_key_.try_emplace(key_of(callable));
  if (is_new) {
    Py_INCREF(callable);  // so that no other callable gets its address; they live as long as torch does
    names_.push_back(std::move(name));
    place->second = {true, resolution.kind, resolution.rule, names_.back().c_str()};
  }
  return place->second;
}

TorchCallable Table::classify(PyObject* callable) {
  const auto found = by_key_.find(key_of(callable));
  return found != by_key_.end() ? found->second : classify_new(callable);
}

// Callables that are not in the modules walked by make(): operators, late modules, hidden types. Cheap for what is not
// torch's, since that is asked again and again.
TorchCallable Table::classify_new(PyObject* callable) {
  PyTypeObject* const type = Py_TYPE(callable);
  if (PyCFunction_Check(callable)) {
    const auto* const function = reinterpret_cast<PyCFunctionObject*>(callable);
    const string_view module = text_of_object(function->m_module);
    if (!is_torch_name(module)) return {};
    // The functions behind OpOverload objects have no name.
    const string_view name = function->m_ml->ml_name;
    return add(callable, std::string(module) + "." + std::string(name),
               module.starts_with("torch._ops") ? Resolution{Kind::Opaque, Always}
                                                : resolve(std::string(module) + "." + std::string(name)));
  }
  if (is_method_descriptor(callable) || Py_IS_TYPE(callable, &PyWrapperDescr_Type)) {
    const string_view owner = PyDescr_TYPE(callable)->tp_name;
    if (!is_torch_name(owner)) return {};
    return add(callable, std::string(owner) + "." + std::string(text_of_object(PyDescr_NAME(callable))));
  }
  if (op_overload_ && PyType_IsSubtype(type, op_overload_)) return classify_operator(callable, "_name");
  if (op_packet_ && PyType_IsSubtype(type, op_packet_)) return classify_operator(callable, "_qualified_op_name");
  // Instances of C types with a call slot of their own: torch._C.ScriptFunction ...
  const auto found = type->tp_call != nullptr ? by_key_.find(type) : by_key_.end();
  return found != by_key_.end() ? TorchCallable{true, Kind::Opaque, Always, found->second.name} : TorchCallable{};
}

// "aten::add.Tensor" -> row of "aten::add" or "*.add"; operators without a row by their tags.
TorchCallable Table::classify_operator(PyObject* op, const char* name_attribute) {
  PyObject* const name_object = PyObject_GetAttrString(op, name_attribute);
  if (name_object == nullptr) PyErr_Clear();
  const std::string name(text_of_object(name_object));
  Py_XDECREF(name_object);
  const string_view base = string_view(name).substr(0, name.find('.', name.find("::") + 2));
  Resolution resolution = base.find("::") == string_view::npos ? Resolution{Kind::Opaque, Always} : resolve(base);
  bool is_foreign = false;
  if (resolution.kind == Kind::Opaque && base.find("::") != string_view::npos && !rows_.contains(base)) {
    resolution = {Kind::Tensor, Always};
    // Those of others: few say that their sizes depend on data.
    static constexpr string_view kOwn[] = {"prims::", "quantized::", "mkldnn::", "inductor::", "_c10d_functional::"};
    is_foreign =
        std::none_of(std::begin(kOwn), std::end(kOwn), [&](string_view prefix) { return base.starts_with(prefix); });
  }
  PyObject* const tag_list = PyObject_GetAttrString(op, "_tags");
  PyTypeObject* const tag_type = find_type("torch._C", "Tag");
  if (tag_list == nullptr) PyErr_Clear();
  if (resolution.kind == Kind::Tensor && tag_list != nullptr && tag_type != nullptr && PyList_Check(tag_list)) {
    static constexpr std::pair<const char*, Kind> kTags[] = {
        {"dynamic_output_shape", Kind::DataDependent},
        {"data_dependent_output", Kind::Sync},
        {"inplace_view", Kind::MutatesMetadata},
    };
    for (const auto& [tag_name, kind] : kTags) {
      PyObject* const tag = PyObject_GetAttrString(reinterpret_cast<PyObject*>(tag_type), tag_name);
      const int found = tag ? PySequence_Contains(tag_list, tag) : -1;
      Py_XDECREF(tag);
      if (found < 0) PyErr_Clear();
      if (found > 0) {
        resolution.kind = kind;
        break;
      }
    }
  }
  Py_XDECREF(tag_list);
  if (is_foreign && resolution.kind == Kind::Tensor) resolution.kind = Kind::DataDependent;
  return add(op, name, resolution);
}

TensorAttribute Table::classify_attribute(PyObject* attribute) const {
  if (Py_IS_TYPE(attribute, &PyGetSetDescr_Type)) {
    if (PyDescr_TYPE(attribute) != base_) return {};
    attribute = PyDescr_NAME(attribute);
  }
  const auto found = attributes_.find(text_of_object(attribute));
  return found != attributes_.end() ? found->second : TensorAttribute{};
}

std::vector<const char*> Table::find_unresolved() const {
  std::vector<const char*> names;
  for (const Row& row : kRows) {
    const bool is_operator = row.name.find("::") != string_view::npos;  // found when it is asked for
    if (!is_operator && !used_rows_.contains(&row)) names.push_back(row.name.data());
  }
  return names;
}

Table* find_table() {
  static Table* table = nullptr;  // guarded by the GIL; stays for the life of the process, as torch does
  if (table == nullptr) table = Table::make();
  return table;
}

// --- size rules
// --------------------------------------------------------------------------------------------------------

// The argument at a position or of a name; nullptr if not given.
PyObject* find_argument(PyObject* const* args, size_t count, PyObject* names, size_t position, const char* name) {
  if (position < count) return args[position];
  const Py_ssize_t name_count = names ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t i = 0; i < name_count; ++i) {
    if (text_of_object(PyTuple_GET_ITEM(names, i)) == name) return args[count + static_cast<size_t>(i)];
  }
  return nullptr;
}

// Masks count their true elements, and a slice with a tensor as bound reads it; numbers, integer tensors, slices of
// numbers, None and ... do not. What is none of these (a numpy array) may be a mask.
bool has_mask(PyObject* index) {
  if (is_tensor(index)) {
    const auto dtype = THPVariable_Unpack(index).scalar_type();
    return dtype == c10::ScalarType::Bool || dtype == c10::ScalarType::Byte;
  }
  if (PyTuple_Check(index) || PyList_Check(index)) {
    PyObject* const* const items = PySequence_Fast_ITEMS(index);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(index); ++i) {
      if (has_mask(items[i])) return true;
    }
    return false;
  }
  if (PySlice_Check(index)) {
    const auto* const slice = reinterpret_cast<PySliceObject*>(index);
    return is_tensor(slice->start) || is_tensor(slice->stop) || is_tensor(slice->step);
  }
  return !(PyLong_Check(index) || index == Py_None || index == Py_Ellipsis);
}

}  // namespace

const char* text_of(TorchCallableKind kind) {
  switch (kind) {
#define KIND(name, text) \
  case Kind::name:       \
    return text;
#include "host/torch/torch_callables.def"
  }
  return "";
}

const char* text_of(TensorAttributeKind kind) {
  switch (kind) {
    case TensorAttributeKind::Unknown:
      return "unknown";
    case TensorAttributeKind::Metadata:
      return "metadata";
    case TensorAttributeKind::HeapState:
      return "heap_state";
    case TensorAttributeKind::Tensor:
      return "tensor";
    case TensorAttributeKind::Foreign:
      return "foreign";
  }
  return "";
}

TorchCallable classify_torch_callable(PyObject* callable) {
  Table* const table = callable != nullptr ? find_table() : nullptr;
  TorchCallable found = table ? table->classify(callable) : TorchCallable{};
  // No stream is capturing as long as CUDA is not initialised, and that the state word tells.
  if (found.kind == Kind::Sync && !strcmp(found.name, "torch._C._cuda_isCurrentStreamCapturing") &&
      !is_cuda_initialised()) {
    found.kind = Kind::StateRead;
  }
  return found;
}

TensorAttribute classify_tensor_attribute(PyObject* descriptor_or_name) {
  const Table* const table = find_table();
  return table ? table->classify_attribute(descriptor_or_name) : TensorAttribute{};
}

bool has_data_dependent_sizes(const TorchCallable& callable, PyObject* const* args, size_t count, PyObject* names) {
  if (callable.kind != Kind::DataDependent) return false;
  const size_t total = count + static_cast<size_t>(names ? PyTuple_GET_SIZE(names) : 0);
  switch (static_cast<SizeRule>(callable.size_rule)) {
    case Always:
      return true;
    case HasOneArgument:
      return total == 1;
    case HasNoClassCount: {
      PyObject* const classes = find_argument(args, count, names, 1, "num_classes");
      if (classes == nullptr || !PyLong_Check(classes)) return true;
      int overflow = 0;
      return PyLong_AsLongAndOverflow(classes, &overflow) < 0;  // -1: as many as the data needs
    }
    case HasTensorRepeats: {
      PyObject* const size = find_argument(args, count, names, 3, "output_size");
      if (size != nullptr && size != Py_None) return false;
      PyObject* const repeats = find_argument(args, count, names, 1, "repeats");
      return repeats == nullptr || is_tensor(repeats);
    }
    case HasSecondTensor: {
      PyObject* second = find_argument(args, count, names, 1, "tensor_indices_or_sections");
      if (second == nullptr) second = find_argument(args, count, names, 1, "indices_or_sections");
      return second != nullptr && is_tensor(second);
    }
    case HasMaskIndex: {
      PyObject* const index = find_argument(args, count, names, 1, "indices");
      return index == nullptr || has_mask(index);
    }
  }
  return true;
}

bool has_data_dependent_result(PyObject* index) {
  if (PyTuple_Check(index)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); ++i) {
      if (has_data_dependent_result(PyTuple_GET_ITEM(index, i))) return true;
    }
    return false;
  }
  if (PyList_Check(index)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(index); ++i) {
      PyObject* const item = PyList_GET_ITEM(index, i);
      if (is_tensor(item) || has_data_dependent_result(item)) return true;
    }
    return false;
  }
  if (is_tensor(index) && (!is_plain_tensor(index) || THPVariable_Unpack(index).dim() == 0)) return true;
  return has_mask(index);
}

bool lacks_device(const TorchCallable& callable) {
  // The number of devices is counted once in a process.
  const string_view name = callable.name;
  if (name.starts_with("torch._C._cuda_")) return !at::hasCUDA();
  if (name.starts_with("torch._C._xpu_")) return !at::hasXPU();
  return false;
}

bool prepare_torch_callables() {
  if (find_table() != nullptr) return true;
  PyErr_SetString(PyExc_RuntimeError, "torch is not imported: there are no torch callables to list");
  return false;
}

std::vector<const char*> find_unresolved_torch_rows() {
  const Table* const table = find_table();
  return table ? table->find_unresolved() : std::vector<const char*>{};
}

}  // namespace reprise::host
