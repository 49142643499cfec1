// Source paths of pre values and texts of guards, for explain and for people. Derived on demand: nothing at run time
// knows of paths.
#include <string_view>

#include "base/check.h"
#include "trace/object_text.h"
#include "trace/trace.h"

namespace reprise::trace {

namespace {

constexpr int kMaxDepth = 200;

std::string number_of(ValueId id) { return id < 0 ? "-" : "%" + std::to_string(id); }

std::string name_of_slot(PyCodeObject* code, int32_t slot) {
  PyObject* names = code == nullptr ? nullptr : code->co_localsplusnames;
  if (names != nullptr && slot < PyTuple_GET_SIZE(names)) {
    if (const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, slot))) return name;
    PyErr_Clear();
  }
  return "stack[" + std::to_string(slot - (names == nullptr ? 0 : static_cast<int32_t>(PyTuple_GET_SIZE(names)))) + "]";
}

std::string unquoted(PyObject* name) {
  if (name != nullptr && PyUnicode_Check(name)) {
    if (const char* text = PyUnicode_AsUTF8(name)) return text;
    PyErr_Clear();
  }
  return describe_object(name);
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string attribute(const std::string& owner, const std::string& name) {
  return is_number(name) ? owner + "[" + name + "]" : owner + "." + name;
}

const char* text_of_binary(int32_t n) {
  static constexpr const char* kTexts[] = {"+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^"};
  return n >= 0 ? kTexts[n % 13] : "?";
}

const char* text_of_compare(int32_t n) {
  static constexpr const char* kTexts[] = {"<", "<=", "==", "!=", ">", ">="};
  return n >= 0 && n < 6 ? kTexts[n] : "?";
}

class Describer {
 public:
  explicit Describer(const Trace& trace) : trace_(trace) {}

  std::string describe(ValueId id, int depth = 0) const {
    if (id < 0 || depth > kMaxDepth) return number_of(id);
    const Value& value = trace_.values[id];
    if (!value.is_pre) return number_of(id);
    const std::span<const ValueId> operands = trace_.operands(id);
    auto operand = [&](size_t i) { return describe(operands[i], depth + 1); };
    switch (value.kind) {
      case NodeKind::Arg:
        return name_of_argument(value.n);
      case NodeKind::Const:
        return describe_constant(value.object);
      case NodeKind::InstanceDict:
        return operand(0) + ".__dict__";
      case NodeKind::DictItem:
        return describe_item(operands[0], value.object, depth);
      case NodeKind::SequenceItem:
        return operand(0) + "[" + std::to_string(value.n) + "]";
      case NodeKind::Length:
        return "len(" + operand(0) + ")";
      case NodeKind::CellContents:
        return describe_contents(operands[0], depth);
      case NodeKind::Referent:
        return operand(0) + "()";
      case NodeKind::Slot:
        return operand(0) + "." + name_of_descriptor(value.object);
      case NodeKind::FunctionField: {
        static constexpr const char* kFields[] = {".__closure__", ".__defaults__", ".__kwdefaults__", ".__code__"};
        return operand(0) + kFields[value.n & 3];
      }
      case NodeKind::MethodField:
        return operand(0) + (value.n == 0 ? ".__func__" : ".__self__");
      case NodeKind::Unary: {
        static constexpr const char* kSigns[] = {"-", "~", "+", "not "};
        return std::string("(") + kSigns[value.n & 3] + operand(0) + ")";
      }
      case NodeKind::Binary:
        return "(" + operand(0) + " " + text_of_binary(value.n) + " " + operand(1) + ")";
      case NodeKind::Compare:
        return "(" + operand(0) + " " + text_of_compare(value.n) + " " + operand(1) + ")";
      case NodeKind::Identical:
        return "(" + operand(0) + " is " + operand(1) + ")";
      case NodeKind::Distinct: {
        std::string text = "distinct(";
        for (size_t i = 0; i < operands.size(); i++) text += (i ? ", " : "") + operand(i);
        return text + ")";
      }
      case NodeKind::Contains:
        return "(" + operand(1) + " in " + operand(0) + ")";
      case NodeKind::GetItem:
      case NodeKind::DictItemByIdentity:
        return operand(0) + "[" + operand(1) + "]";
      case NodeKind::TensorSize:
        return describe_size(operand(0), value.n);
      case NodeKind::Truth:
        return "bool(" + operand(0) + ")";
      case NodeKind::Tuple: {
        std::string text = "(";
        for (size_t i = 0; i < operands.size(); i++) text += (i ? ", " : "") + operand(i);
        return text + (operands.size() == 1 ? ",)" : ")");
      }
      case NodeKind::Call: {
        std::string text = operand(0) + "(";
        for (size_t i = 1; i < operands.size(); i++) text += (i > 1 ? ", " : "") + operand(i);
        return text + ")";
      }
      default:  // every other kind has no source form
        return number_of(id);
    }
  }

 private:
  static std::string describe_size(const std::string& tensor, int32_t read) {
    const std::string dimension = std::to_string(read >> 8);
    switch (static_cast<host::SizeRead>(read & 0xff)) {
      case host::SizeRead::Size:
        return tensor + ".shape[" + dimension + "]";
      case host::SizeRead::Stride:
        return tensor + ".stride(" + dimension + ")";
      case host::SizeRead::ElementCount:
        return tensor + ".numel()";
      case host::SizeRead::StorageOffset:
        return tensor + ".storage_offset()";
      case host::SizeRead::IsContiguous:
        return tensor + ".is_contiguous()";
    }
    return tensor;
  }

  std::string name_of_argument(int32_t n) const {
    for (size_t i = trace_.branch_frames.size(); i-- > 0;) {
      const Trace::BranchFrame& frame = trace_.branch_frames[i];
      if (n < frame.first_slot) continue;
      const bool is_innermost = i + 1 == trace_.branch_frames.size();
      return (is_innermost ? "" : unquoted(frame.code->co_name) + "()'s ") +
             name_of_slot(frame.code, n - frame.first_slot);
    }
    return name_of_slot(trace_.code, n);
  }

  static std::string name_of_descriptor(PyObject* descriptor) {
    PyTypeObject* type = descriptor == nullptr ? nullptr : Py_TYPE(descriptor);
    if (type == &PyGetSetDescr_Type || type == &PyMemberDescr_Type) {
      return unquoted(reinterpret_cast<PyDescrObject*>(descriptor)->d_name);
    }
    return describe_object(descriptor);
  }

  static std::string describe_constant(PyObject* object) {
    if (object != nullptr && PyModule_Check(object))
      return unquoted(PyDict_GetItemString(PyModule_GetDict(object), "__name__"));
    const std::string name = name_of_callable(object);
    return name.empty() ? describe_object(object) : name;
  }

  // The namespace of a module: its own variables are bare names, those of others carry the module's name.
  bool find_namespace(ValueId dict, std::string* prefix) const {
    const Value& value = trace_.values[dict];
    if (value.kind != NodeKind::Const || value.object == nullptr || !PyDict_Check(value.object)) return false;
    *prefix = "";
    if (value.object == trace_.globals) return true;
    PyObject* name = PyDict_GetItemString(value.object, "__name__");
    if (name == nullptr || !PyUnicode_Check(name)) return false;
    *prefix = unquoted(name) + ".";
    if (*prefix == "builtins.") *prefix = "";
    return true;
  }

  std::string describe_item(ValueId dict, PyObject* key, int depth) const {
    std::string prefix;
    if (find_namespace(dict, &prefix)) return prefix + unquoted(key);
    const Value& owner = trace_.values[dict];
    if (owner.is_pre && owner.kind == NodeKind::InstanceDict) {
      return attribute(describe(trace_.operands(dict)[0], depth + 1), unquoted(key));
    }
    // nn.Module keeps children and tensors one dict further down.
    if (owner.is_pre && owner.kind == NodeKind::DictItem && key != nullptr && PyUnicode_Check(key)) {
      const std::string name = unquoted(owner.object);
      const ValueId outer = trace_.operands(dict)[0];
      if ((name == "_modules" || name == "_parameters" || name == "_buffers") &&
          trace_.values[outer].kind == NodeKind::InstanceDict) {
        return attribute(describe(trace_.operands(outer)[0], depth + 1), unquoted(key));
      }
    }
    return describe(dict, depth + 1) + "[" + describe_object(key) + "]";
  }

  std::string describe_contents(ValueId cell, int depth) const {
    const Value& value = trace_.values[cell];
    if (value.kind == NodeKind::Arg) return name_of_slot(trace_.code, value.n);
    if (value.kind == NodeKind::Const && trace_.function != nullptr && PyFunction_Check(trace_.function)) {
      PyObject* closure = PyFunction_GET_CLOSURE(trace_.function);
      const Py_ssize_t count = closure == nullptr ? 0 : PyTuple_GET_SIZE(closure);
      for (Py_ssize_t i = 0; i < count; i++) {
        if (PyTuple_GET_ITEM(closure, i) != value.object) continue;
        const Py_ssize_t slots = PyTuple_GET_SIZE(trace_.code->co_localsplusnames);
        return name_of_slot(trace_.code, static_cast<int32_t>(slots - count + i));
      }
    }
    return describe(cell, depth + 1) + ".cell_contents";
  }

  const Trace& trace_;
};

}  // namespace

std::string describe_value(const Trace& trace, ValueId id) { return Describer(trace).describe(id); }

std::string describe_guard(const Trace& trace, const Guard& guard) {
  const std::string value = describe_value(trace, guard.value);
  switch (guard.fact) {
    case FactKind::Type:
      return "type(" + value + ") is " + describe_object(guard.object);
    case FactKind::Identity:
      return value + " is " + describe_object(guard.object);
    case FactKind::Absent:
      return value + " is absent";
    case FactKind::Present:
      return value + " is present";
    case FactKind::Truth:
      return "bool(" + value + ") is " + (guard.n ? "True" : "False");
    case FactKind::Equal:
      return value + " == " + describe_object(guard.object);
    case FactKind::Length:
      return "len(" + value + ") == " + std::to_string(guard.n);
    case FactKind::Keys:
      return "keys of " + value + " are " + describe_object(guard.object);
    case FactKind::TensorMeta:
      return value + " is " +
             (guard.n >= 0 && static_cast<size_t>(guard.n) < trace.tensor_metas.size() && trace.tensor_metas[guard.n]
                  ? host::describe_tensor_meta(*trace.tensor_metas[guard.n])
                  : std::string("a tensor"));
    case FactKind::TensorLike:
      return value + " is a tensor of the recorded type and device with " +
             std::to_string(trace.tensor_metas[guard.n]->dim_count()) + " dimensions";
    case FactKind::Same:
      return value + " is " + describe_value(trace, static_cast<ValueId>(guard.n));
    case FactKind::Different:
      return value + " is not " + describe_value(trace, static_cast<ValueId>(guard.n));
    case FactKind::Code:
      return value + ".__code__ is " + describe_object(guard.object);
  }
  REPRISE_UNREACHABLE("fact kind " + std::to_string(static_cast<int>(guard.fact)));
}

std::string describe_place(const FrameState& state) {
  // A caller waits behind its call: its own instruction tells the line.
  return describe_code_place(state.code, state.op_unit);
}

}  // namespace reprise::trace
