// The invariants of the trace IR. A recorder that breaks one of them is a bug of ours; the text says which item.
#include <string>
#include <vector>

#include "trace/trace.h"

namespace reprise::trace {

namespace {

constexpr int32_t kArities[] = {
#define X(name, text, category, arity, payload) arity,
#include "trace/node_kinds.def"
};

class Verifier {
 public:
  explicit Verifier(const Trace& trace) : trace_(trace) {}

  std::string verify() {
    verify_items();
    for (size_t i = 0; i < trace_.frame_states.size() && ok(); i++) verify_frame(static_cast<int32_t>(i));
    for (size_t i = 0; i < trace_.snapshots.size() && ok(); i++) verify_snapshot(static_cast<int32_t>(i));
    if (ok()) verify_end();
    return std::move(error_);
  }

 private:
  bool ok() const { return error_.empty(); }

  void fail(const std::string& text) {
    if (ok()) error_ = text;
  }

  bool is_value(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < trace_.values.size(); }

  // Defined by an item in front of `item`.
  bool is_defined(ValueId id, int32_t item) const {
    return is_value(id) && trace_.values[id].item >= 0 && trace_.values[id].item < item;
  }

  static bool may_lack_operand(NodeKind kind, size_t index) {
    switch (kind) {
      case NodeKind::Function:
        return index > 0;
      case NodeKind::SetCell:
        return index == 1;
      case NodeKind::Suspend:
        return index > 0;
      case NodeKind::Generator:
        return true;  // a function that existed before: the frame states name it
      default:
        return false;
    }
  }

  void verify_items() {
    int32_t last_guard = -1;
    for (size_t i = 0; i < trace_.items.size() && ok(); i++) {
      const Item& item = trace_.items[i];
      const std::string where = "item " + std::to_string(i) + ": ";
      if (!is_value(item.value)) return fail(where + "no value " + std::to_string(item.value));
      if (item.guard >= 0) {
        if (item.guard != last_guard + 1) return fail(where + "guards are not numbered in order");
        last_guard = item.guard;
        if (static_cast<size_t>(item.guard) >= trace_.guards.size()) return fail(where + "no such guard");
        verify_guard(trace_.guards[item.guard], item, static_cast<int32_t>(i), where);
      } else {
        verify_node(item.value, static_cast<int32_t>(i), where);
      }
    }
  }

  void verify_node(ValueId id, int32_t item, const std::string& where) {
    const Value& value = trace_.values[id];
    const std::span<const ValueId> operands = trace_.operands(id);
    const Category category = category_of(value.kind);
    if (value.item != item) return fail(where + "value %" + std::to_string(id) + " is listed twice or elsewhere");
    const int32_t arity = kArities[static_cast<size_t>(value.kind)];
    if (arity >= 0 && operands.size() != static_cast<size_t>(arity)) {
      return fail(where + text_of(value.kind) + " has " + std::to_string(operands.size()) + " operands, expected " +
                  std::to_string(arity));
    }
    bool all_pre = true;
    for (size_t i = 0; i < operands.size(); i++) {
      if (operands[i] == kNoValue && may_lack_operand(value.kind, i)) continue;
      if (!is_defined(operands[i], item))
        return fail(where + "operand %" + std::to_string(operands[i]) + " is not defined before");
      all_pre = all_pre && trace_.values[operands[i]].is_pre;
    }
    const bool may_be_pre = category == Category::Root || category == Category::Read || category == Category::Py ||
                            value.kind == NodeKind::Tuple || value.kind == NodeKind::Slice;
    if (value.is_pre && !may_be_pre) return fail(where + text_of(value.kind) + " cannot be pre");
    if (value.is_pre && !all_pre) return fail(where + "a pre value has a late operand");
    if (category == Category::Root && !value.is_pre) return fail(where + "a root is not pre");
    verify_payload(value, operands, where);
    if (value.snapshot >= 0) verify_use(value.snapshot, item, where);
  }

  void verify_payload(const Value& value, std::span<const ValueId> operands, const std::string& where) {
    if (value.kind == NodeKind::Arg && (value.n < 0 || value.n >= trace_.slot_count)) {
      fail(where + "arg " + std::to_string(value.n) + " of " + std::to_string(trace_.slot_count) + " slots");
    }
    if (value.kind == NodeKind::Const && value.object == nullptr) fail(where + "const without object");
    if (category_of(value.kind) == Category::Mutate && operands.empty()) fail(where + "mutation without target");
    if (value.kind == NodeKind::Advance && trace_.values[operands[0]].kind != NodeKind::Iterator) {
      fail(where + "advance of what is no iterator of the trace");
    }
    if (value.kind == NodeKind::Suspend) {
      if (trace_.values[operands[0]].kind != NodeKind::Generator)
        fail(where + "suspend of what is no generator of the trace");
      if (value.n >= 0 && static_cast<size_t>(value.n) >= trace_.frame_states.size())
        fail(where + "no such frame state");
    }
    const bool needs_name = value.kind == NodeKind::DictItem || value.kind == NodeKind::Slot ||
                            value.kind == NodeKind::SetAttribute || value.kind == NodeKind::DeleteAttribute ||
                            value.kind == NodeKind::TensorGetAttribute || value.kind == NodeKind::TensorSetAttribute ||
                            value.kind == NodeKind::Function;
    if (needs_name && value.object == nullptr) fail(where + text_of(value.kind) + " without object");
    const bool is_call = value.kind == NodeKind::Call || value.kind == NodeKind::TensorCall ||
                         value.kind == NodeKind::StateCall || value.kind == NodeKind::SyncCall;
    if (is_call && operands.empty()) fail(where + "call without callable");
  }

  void verify_guard(const Guard& guard, const Item& item, int32_t index, const std::string& where) {
    if (guard.value != item.value) return fail(where + "guard on another value than its item");
    if (!is_defined(guard.value, index)) return fail(where + "guard on a value that is not defined before");
    const bool is_pre = trace_.values[guard.value].is_pre;
    if (is_pre && guard.snapshot >= 0) return fail(where + "entry guard with a snapshot");
    if (!is_pre && guard.snapshot < 0) return fail(where + "late guard without snapshot");
    if (!is_pre) verify_use(guard.snapshot, index, where);
    switch (guard.fact) {
      case FactKind::Type:
      case FactKind::Identity:
      case FactKind::Equal:
      case FactKind::Code:
        if (guard.object == nullptr) fail(where + "guard without object");
        break;
      case FactKind::Keys:
        if (guard.object == nullptr || !PyTuple_CheckExact(guard.object)) fail(where + "keys without a tuple");
        break;
      case FactKind::TensorMeta:
      case FactKind::TensorLike:
        if (guard.n < 0 || static_cast<size_t>(guard.n) >= trace_.tensor_metas.size())
          fail(where + "no such tensor metadata");
        break;
      case FactKind::Same:
      case FactKind::Different:
        if (!is_defined(static_cast<ValueId>(guard.n), index))
          return fail(where + "compared with a value not defined before");
        if (is_pre && !trace_.values[guard.n].is_pre) fail(where + "entry guard compares with a late value");
        break;
      case FactKind::Absent:
      case FactKind::Present:
      case FactKind::Truth:
      case FactKind::Length:
        break;
    }
  }

  void verify_use(int32_t snapshot, int32_t item, const std::string& where) {
    if (static_cast<size_t>(snapshot) >= trace_.snapshots.size())
      return fail(where + "no snapshot " + std::to_string(snapshot));
    if (trace_.snapshots[snapshot].item > item) fail(where + "its snapshot was taken after it");
  }

  void verify_frame(int32_t index) {
    const FrameState& state = trace_.frame_states[index];
    const std::string where = "frame state " + std::to_string(index) + ": ";
    if (state.code == nullptr) return fail(where + "no code");
    if (state.function == nullptr && state.function_value == kNoValue) return fail(where + "no function");
    if (state.mode == host::ResumeMode::PushValue && state.mode_value == kNoValue)
      return fail(where + "no value to push");
    if (state.caller == index || state.caller >= static_cast<int32_t>(trace_.frame_states.size()))
      fail(where + "no such caller");
  }

  void verify_snapshot(int32_t index) {
    const Snapshot& snapshot = trace_.snapshots[index];
    const std::string where = "snapshot " + std::to_string(index) + ": ";
    auto check = [&](ValueId id) {
      if (id != kNoValue && !is_value(id)) fail(where + "no value " + std::to_string(id));
      if (id != kNoValue && ok() && trace_.values[id].item >= snapshot.item)
        fail(where + "%" + std::to_string(id) + " is later");
    };
    if (snapshot.frame < 0 || static_cast<size_t>(snapshot.frame) >= trace_.frame_states.size())
      return fail(where + "no frame");
    check(snapshot.handled_exception);
    size_t depth = 0;
    for (int32_t frame = snapshot.frame; frame >= 0 && ok(); frame = trace_.frame_states[frame].caller) {
      const FrameState& state = trace_.frame_states[frame];
      if (++depth > trace_.frame_states.size()) return fail(where + "its frames form a cycle");
      if (is_checked(frame, snapshot.item)) break;
      for (ValueId id : state.slots) check(id);
      check(state.mode_value);
      check(state.function_value);
      check(state.generator_value);
    }
  }

  // Frame states are shared: a frame that was fine for a smaller bound is fine for a larger one, and so are its
  // callers.
  bool is_checked(int32_t frame, int32_t bound) {
    if (checked_.empty()) checked_.assign(trace_.frame_states.size(), -1);
    if (checked_[frame] >= 0 && checked_[frame] <= bound) return true;
    checked_[frame] = bound;
    return false;
  }

  void verify_end() {
    if (trace_.end == EndKind::Return) {
      if (!is_defined(trace_.result, static_cast<int32_t>(trace_.items.size()))) fail("end: the result is not defined");
      return;
    }
    if (trace_.end_snapshot < 0 || static_cast<size_t>(trace_.end_snapshot) >= trace_.snapshots.size()) {
      return fail("end: an exit without snapshot");
    }
    if (!trace_.snapshots[trace_.end_snapshot].is_exact) fail("end: its snapshot cannot be resumed");
  }

  const Trace& trace_;
  std::vector<int32_t> checked_;
  std::string error_;
};

}  // namespace

std::string verify_trace(const Trace& trace) { return Verifier(trace).verify(); }

}  // namespace reprise::trace
