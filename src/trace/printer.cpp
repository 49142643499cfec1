// Text of a trace. Tests compare it whole, so nothing in it depends on addresses, hashes or the machine.
#include <string>

#include "base/check.h"
#include "trace/object_text.h"
#include "trace/trace.h"

namespace reprise::trace {

namespace {

std::string number_of(ValueId id) { return id < 0 ? "-" : "%" + std::to_string(id); }

const char* text_of(host::ResumeMode mode) {
  switch (mode) {
    case host::ResumeMode::Push:
      return "push";
    case host::ResumeMode::PushNullFirst:
      return "push_null_first";
    case host::ResumeMode::Drop:
      return "drop";
    case host::ResumeMode::PushValue:
      return "push_value";
    case host::ResumeMode::Never:
      return "never";
  }
  REPRISE_UNREACHABLE("resume mode " + std::to_string(static_cast<int>(mode)));
}

bool has_payload_number(NodeKind kind) {
  switch (kind) {
    case NodeKind::Arg:
    case NodeKind::SequenceItem:
    case NodeKind::FunctionField:
    case NodeKind::MethodField:
    case NodeKind::Unary:
    case NodeKind::Binary:
    case NodeKind::Compare:
    case NodeKind::Format:
    case NodeKind::Object:
    case NodeKind::Method:
    case NodeKind::Suspend:
    case NodeKind::TensorSize:
    case NodeKind::TensorUnary:
    case NodeKind::TensorBinary:
    case NodeKind::TensorCompare:
      return true;
    default:
      return false;
  }
}

class Printer {
 public:
  explicit Printer(const Trace& trace) : trace_(trace) {}

  std::string print() {
    text_ = "trace " + name_of_callable(reinterpret_cast<PyObject*>(trace_.code)) + " at unit " +
            std::to_string(trace_.unit) + (trace_.is_call_entry ? "" : " inside") + "\n";
    for (const TypeVersion& version : trace_.type_versions) text_ += "version of " + describe_type(version.type) + "\n";
    for (const Item& item : trace_.items)
      item.guard >= 0 ? print_guard(trace_.guards[item.guard]) : print_node(item.value);
    print_end();
    for (size_t i = 0; i < trace_.snapshots.size(); i++) print_snapshot(i);
    for (size_t i = 0; i < trace_.frame_states.size(); i++) print_frame(i);
    return std::move(text_);
  }

 private:
  void print_node(ValueId id) {
    const Value& value = trace_.values[id];
    text_ += number_of(id) + " = " + trace::text_of(value.kind);
    if (has_payload_number(value.kind)) text_ += " " + std::to_string(value.n);
    for (ValueId operand : trace_.operands(id)) text_ += " " + number_of(operand);
    if (value.object != nullptr) text_ += " " + describe_object(value.object);
    print_snapshot_reference(value.snapshot);
    text_ += "\n";
  }

  void print_guard(const Guard& guard) {
    text_ += trace_.values[guard.value].is_pre ? "guard " : "late ";
    text_ += number_of(guard.value) + " " + trace::text_of(guard.fact);
    switch (guard.fact) {
      case FactKind::Type:
      case FactKind::Identity:
      case FactKind::Equal:
      case FactKind::Keys:
      case FactKind::Code:
        text_ += " " + describe_object(guard.object);
        break;
      case FactKind::Absent:
      case FactKind::Present:
        break;
      case FactKind::Truth:
        text_ += guard.n ? " True" : " False";
        break;
      case FactKind::Length:
        text_ += " " + std::to_string(guard.n);
        break;
      case FactKind::TensorMeta:
      case FactKind::TensorLike:
        if (guard.n >= 0 && static_cast<size_t>(guard.n) < trace_.tensor_metas.size() && trace_.tensor_metas[guard.n]) {
          text_ += " " + host::describe_tensor_meta(*trace_.tensor_metas[guard.n]);
        }
        break;
      case FactKind::Same:
      case FactKind::Different:
        text_ += " " + number_of(static_cast<ValueId>(guard.n));
        break;
    }
    print_snapshot_reference(guard.snapshot);
    text_ += "\n";
  }

  void print_end() {
    switch (trace_.end) {
      case EndKind::Return:
        text_ += "return " + number_of(trace_.result) + "\n";
        break;
      case EndKind::Exit:
      case EndKind::Raise:
        text_ += trace_.end == EndKind::Exit ? "exit" : "raise";
        print_snapshot_reference(trace_.end_snapshot);
        if (!trace_.end_text.empty()) text_ += " " + trace_.end_text;
        text_ += "\n";
        break;
    }
  }

  void print_snapshot_reference(int32_t snapshot) {
    if (snapshot >= 0) text_ += " @s" + std::to_string(snapshot);
  }

  void print_snapshot(size_t index) {
    const Snapshot& snapshot = trace_.snapshots[index];
    text_ += "s" + std::to_string(index) + ": item " + std::to_string(snapshot.item) + " frame f" +
             std::to_string(snapshot.frame);
    if (snapshot.handled_exception >= 0) text_ += " handling " + number_of(snapshot.handled_exception);
    if (!snapshot.is_exact) text_ += " raise only";
    text_ += "\n";
  }

  void print_frame(size_t index) {
    const FrameState& state = trace_.frame_states[index];
    text_ += "f" + std::to_string(index) + ": " + name_of_callable(reinterpret_cast<PyObject*>(state.code)) + " unit " +
             std::to_string(state.unit) + " [";
    for (size_t i = 0; i < state.slots.size(); i++) text_ += (i ? " " : "") + number_of(state.slots[i]);
    text_ += "]";
    if (state.function_value >= 0) text_ += " function " + number_of(state.function_value);
    if (state.generator_value >= 0) text_ += " generator " + number_of(state.generator_value);
    if (state.mode != host::ResumeMode::Push) text_ += std::string(" ") + text_of(state.mode);
    if (state.mode_value >= 0) text_ += " " + number_of(state.mode_value);
    if (state.caller >= 0) text_ += " in f" + std::to_string(state.caller);
    text_ += "\n";
  }

  const Trace& trace_;
  std::string text_;
};

}  // namespace

std::string print_trace(const Trace& trace) { return Printer(trace).print(); }

}  // namespace reprise::trace
