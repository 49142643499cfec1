#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include "host/torch/sym_scalar_impl.h"
#include "host/torch/trace_tensor_impl.h"

namespace reprise::host {

namespace {

namespace py = pybind11;

enum class ResultRule : uint8_t { Number, Same, Float, Int, Bool, Item, State, None };
constexpr ResultRule kResultRules[] = {
#define X(name, text, arity, result) ResultRule::result,
#include "host/torch/scalar_ops.def"
};

c10::SymNode unwrap(const c10::SymNode& node) {
  auto* python = dynamic_cast<torch::impl::PythonSymNodeImpl*>(node.get());
  if (python == nullptr) return node;
  const py::gil_scoped_acquire gil;
  const py::object object = py::reinterpret_borrow<py::object>(python->getPyObj());
  if (!py::isinstance<c10::SymNodeImpl>(object)) return node;
  return unwrap(object.cast<c10::SymNode>());
}

TraceValueKind kind_of_node(const c10::SymNode& node) {
  if (node->is_float()) return TraceValueKind::Float;
  return node->is_bool() ? TraceValueKind::Bool : TraceValueKind::Int;
}

class TraceScalar : public c10::SymNodeImpl {
 public:
  TraceScalar(OpArg arg, TraceValueKind kind) : arg_(arg), kind_(kind) {}

  const OpArg& arg() const { return arg_; }

  bool is_int() override { return kind_ == TraceValueKind::Int; }
  bool is_bool() override { return kind_ == TraceValueKind::Bool; }
  bool is_float() override { return kind_ == TraceValueKind::Float; }
  bool has_hint() override { return false; }

#define BINARY(method, op) \
  c10::SymNode method(const c10::SymNode& other) override { return binary(ScalarOp::op, other); }
  BINARY(add, Add)
  BINARY(sub, Sub)
  BINARY(mul, Mul)
  BINARY(truediv, TrueDiv)
  BINARY(float_truediv, TrueDiv)
  BINARY(int_truediv, TrueDiv)
  BINARY(pow, Pow)
  BINARY(float_pow, FloatPow)
  BINARY(pow_by_natural, Pow)
  BINARY(floordiv, FloorDiv)
  BINARY(int_floordiv, FloorDiv)
  BINARY(mod, Mod)
  BINARY(eq, Eq)
  BINARY(ne, Ne)
  BINARY(gt, Gt)
  BINARY(lt, Lt)
  BINARY(le, Le)
  BINARY(ge, Ge)
  BINARY(sym_min, Min)
  BINARY(sym_max, Max)
  BINARY(sym_and, And)
  BINARY(sym_or, Or)
#undef BINARY
#define UNARY(method, op) \
  c10::SymNode method() override { return unary(ScalarOp::op); }
  UNARY(sym_not, Not)
  UNARY(neg, Neg)
  UNARY(floor, Floor)
  UNARY(ceil, Ceil)
  UNARY(sym_float, ToFloat)
#undef UNARY
  c10::SymNode clone() override { return self(); }

  c10::SymNode wrap_int(int64_t number) override {
    OpArg arg;
    arg.kind = OpArg::Kind::Int;
    arg.integer = number;
    return c10::make_intrusive<TraceScalar>(arg, TraceValueKind::Int);
  }
  c10::SymNode wrap_float(double number) override {
    OpArg arg;
    arg.kind = OpArg::Kind::Float;
    arg.real = number;
    return c10::make_intrusive<TraceScalar>(arg, TraceValueKind::Float);
  }
  c10::SymNode wrap_bool(bool number) override {
    OpArg arg;
    arg.kind = OpArg::Kind::Bool;
    arg.integer = number ? 1 : 0;
    return c10::make_intrusive<TraceScalar>(arg, TraceValueKind::Bool);
  }

  int64_t guard_int(const char*, int64_t) override { return known() ? arg_.integer : refuse(); }
  bool guard_bool(const char*, int64_t) override { return known() ? arg_.integer != 0 : refuse() != 0; }
  double guard_float(const char*, int64_t) override { return known() ? arg_.real : static_cast<double>(refuse()); }
  int64_t int_() override { return guard_int("", 0); }
  bool bool_() override { return guard_bool("", 0); }
  bool guard_size_oblivious(const char*, int64_t) override { return guard_bool("", 0); }
  bool guard_or_false(const char*, int64_t) override { return known() && arg_.integer != 0; }
  bool guard_or_true(const char*, int64_t) override { return !known() || arg_.integer != 0; }
  bool statically_known_true(const char*, int64_t) override { return known() && arg_.integer != 0; }
  // Reached from SymFloat.__pow__ and others: checked when the graph runs.
  bool expect_true(const char*, int64_t) override {
    if (known()) return arg_.integer != 0;
    if (TraceRun::State* state = current_trace()) {
      state->sink->add_scalar_op(ScalarOp::Assert, {&arg_, 1}, kNoTraceValue);
    }
    return true;
  }
  bool is_constant() override { return known(); }
  std::string str() override { return "s" + std::to_string(arg_.id); }

 private:
  bool known() const { return arg_.kind != OpArg::Kind::Value; }
  c10::SymNode self() { return c10::SymNode::reclaim_copy(this); }

  static int64_t refuse() {
    if (TraceRun::State* state = current_trace()) {
      fail_trace(*state, "the value of a scalar that depends on data is needed: the region must end in front of it");
    }
    TORCH_CHECK(false, "reprise: a symbolic scalar outlived its region");
  }

  c10::SymNode unary(ScalarOp op) {
    const TraceValueKind kind =
        kResultRules[static_cast<size_t>(op)] == ResultRule::Same ? kind_ : result_of(op, kind_);
    return add_symbolic_op(op, {&arg_, 1}, kind);
  }
  c10::SymNode binary(ScalarOp op, const c10::SymNode& other) {
    const OpArg args[] = {arg_, arg_of_symbol(other)};
    return add_symbolic_op(op, args, result_of(op, kind_of_node(unwrap(other))));
  }
  TraceValueKind result_of(ScalarOp op, TraceValueKind other) const {
    switch (kResultRules[static_cast<size_t>(op)]) {
      case ResultRule::Float:
        return TraceValueKind::Float;
      case ResultRule::Bool:
        return TraceValueKind::Bool;
      case ResultRule::Number:
        return kind_ == TraceValueKind::Float || other == TraceValueKind::Float ? TraceValueKind::Float
                                                                                : TraceValueKind::Int;
      default:
        return TraceValueKind::Int;
    }
  }

  OpArg arg_;
  TraceValueKind kind_;
};

}  // namespace

const char* text_of(ScalarOp op) {
  static constexpr const char* kTexts[] = {
#define X(name, text, arity, result) text,
#include "host/torch/scalar_ops.def"
  };
  return kTexts[static_cast<size_t>(op)];
}

std::optional<ScalarOp> find_scalar_op(std::string_view text) {
  static constexpr std::pair<std::string_view, ScalarOp> kRows[] = {
#define X(name, text, arity, result) {text, ScalarOp::name},
#include "host/torch/scalar_ops.def"
  };
  for (const auto& [row, op] : kRows) {
    if (row == text) return op;
  }
  return std::nullopt;
}

c10::SymNode add_symbolic_op(ScalarOp op, std::span<const OpArg> args, TraceValueKind kind) {
  TraceRun::State* state = current_trace();
  TORCH_CHECK(state != nullptr, "reprise: a symbolic scalar outlived its region");
  TraceValueMeta meta;
  meta.kind = kind;
  const TraceValueId result = state->new_value(std::move(meta));
  state->sink->add_scalar_op(op, args, result);
  return make_symbol(result, kind);
}

c10::SymNode make_symbol(TraceValueId value, TraceValueKind kind) {
  OpArg arg;
  arg.kind = OpArg::Kind::Value;
  arg.id = value;
  return c10::make_intrusive<TraceScalar>(arg, kind);
}

c10::SymNode find_symbol(const c10::IValue& value) {
  if (value.isSymInt()) {
    const c10::SymInt number = value.toSymInt();
    if (number.is_heap_allocated()) return number.toSymNode();
  } else if (value.isSymFloat()) {
    const c10::SymFloat number = value.toSymFloat();
    if (number.is_symbolic()) return number.toSymNodeImpl();
  } else if (value.isSymBool()) {
    const c10::SymBool number = value.toSymBool();
    if (number.is_heap_allocated()) return number.toSymNodeImpl();
  }
  return {};
}

OpArg arg_of_symbol(const c10::SymNode& symbol) {
  const c10::SymNode node = unwrap(symbol);
  if (const auto* scalar = dynamic_cast<const TraceScalar*>(node.get())) return scalar->arg();
  OpArg arg;
  if (const auto number = node->constant_int()) {
    arg.kind = OpArg::Kind::Int;
    arg.integer = *number;
    return arg;
  }
  if (const auto number = node->constant_bool()) {
    arg.kind = OpArg::Kind::Bool;
    arg.integer = *number ? 1 : 0;
    return arg;
  }
  TORCH_CHECK(current_trace() != nullptr, "reprise: a symbolic number outside of a region");
  fail_trace(*current_trace(), "a symbolic number of someone else");
}

c10::SymNode find_wrapped_symbol(const at::Tensor& number) {
  constexpr int64_t kIntPlaceholder = 7777777;
  if (number.dim() != 0 || !number.device().is_cpu()) return {};
  if (number.scalar_type() == c10::kDouble) {
    const double value = *number.const_data_ptr<double>();
    if (value == value) return {};  // symbols are NaN here
  } else if (number.scalar_type() != c10::kLong || *number.const_data_ptr<int64_t>() != kIntPlaceholder) {
    return {};
  }
  const py::gil_scoped_acquire gil;
  const py::object object = py::reinterpret_steal<py::object>(THPVariable_Wrap(number));
  if (!py::hasattr(object, "_wrapped_number")) return {};
  return object.attr("_wrapped_number").attr("node").cast<c10::SymNode>();
}

TraceValueKind kind_of_item(c10::ScalarType dtype) {
  if (c10::isFloatingType(dtype)) return TraceValueKind::Float;
  return dtype == c10::kBool ? TraceValueKind::Bool : TraceValueKind::Int;
}

PyObject* wrap_symbol(const c10::SymNode& node) {
  try {
    const char* type = node->is_float() ? "SymFloat" : node->is_bool() ? "SymBool" : "SymInt";
    const py::object module = py::reinterpret_borrow<py::object>(PyImport_AddModule("torch"));
    return module.attr(type)(py::cast(node)).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
}

}  // namespace reprise::host
