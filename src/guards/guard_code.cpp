#include "guards/guard_code.h"

#include <limits>

#include "base/check.h"
#include "guards/facts.h"
#include "guards/reads.h"
#include "trace/object_text.h"

namespace reprise::guards {

using trace::Category;
using trace::FactKind;
using trace::NodeKind;
using trace::ValueId;

namespace {

class Builder {
 public:
  Builder(const trace::Trace& trace, GuardCode* code) : trace_(trace), code_(*code) {}

  std::string build(std::span<const ValueId> kept) {
    code_ = GuardCode();
    code_.trace = &trace_;
    find_needed(kept);
    slot_of_.assign(trace_.values.size(), -1);
    for (ValueId id : kept) slot_of_[id] = add_slot();
    code_.kept_count = kept.size();
    for (const trace::Item& item : trace_.items) {
      if (item.guard >= 0) {
        if (is_entry_guard(trace_.guards[item.guard])) add_fact(item.guard);
      } else if (is_needed_[item.value]) {
        add_node(item.value);
      }
      if (!error_.empty()) return error_;
    }
    index_users();
    return "";
  }

 private:
  bool is_entry_guard(const trace::Guard& guard) const { return trace_.values[guard.value].is_pre; }

  void find_needed(std::span<const ValueId> kept) {
    is_needed_.assign(trace_.values.size(), 0);
    for (ValueId id : kept) is_needed_[id] = 1;
    for (const trace::Item& item : trace_.items) {
      if (item.guard < 0) continue;
      const trace::Guard& guard = trace_.guards[item.guard];
      if (!is_entry_guard(guard)) continue;
      is_needed_[guard.value] = 1;
      if (guard.fact == FactKind::Same || guard.fact == FactKind::Different) is_needed_[guard.n] = 1;
    }
    for (size_t i = trace_.items.size(); i-- > 0;) {  // operands stand before their users
      const trace::Item& item = trace_.items[i];
      if (item.guard >= 0 || !is_needed_[item.value]) continue;
      for (ValueId operand : trace_.operands(item.value)) is_needed_[operand] = 1;
    }
  }

  int32_t add_slot() {
    code_.initial.push_back(nullptr);
    return code_.slot_count() - 1;
  }

  void add_node(ValueId id) {
    const trace::Value& value = trace_.values[id];
    REPRISE_CHECK(value.is_pre, "%" + std::to_string(id) + " is needed at entry but late");
    if (slot_of_[id] < 0) slot_of_[id] = add_slot();
    const int32_t slot = slot_of_[id];
    if (value.kind == NodeKind::Const) {
      code_.initial[slot] = value.object;
      return;
    }
    const std::span<const ValueId> operands = trace_.operands(id);
    GuardOp op;
    op.kind = static_cast<uint8_t>(value.kind);
    op.slot = slot;
    op.n = value.n;
    op.object = value.object;
    if (operands.size() > std::numeric_limits<uint16_t>::max()) {
      error_ = "an operation at entry has " + std::to_string(operands.size()) + " operands";
      return;
    }
    op.operand_count = static_cast<uint16_t>(operands.size());
    if (operands.size() == 1) {
      op.operand = slot_of_[operands[0]];
    } else if (!operands.empty()) {
      op.operand = static_cast<int32_t>(code_.operand_pool.size());
      for (ValueId operand : operands) code_.operand_pool.push_back(slot_of_[operand]);
    }
    check_runs_no_python(id, operands);
    code_.ops.push_back(op);
    code_.origins.push_back(id);
  }

  // What can be seen now; the rest depends on the operands' types and is checked when the operation runs.
  void check_runs_no_python(ValueId id, std::span<const ValueId> operands) {
    const trace::Value& value = trace_.values[id];
    if (value.kind == NodeKind::Call) {
      const trace::Value& callable = trace_.values[operands[0]];
      if (callable.kind == NodeKind::Const && !is_plain_callable(callable.object)) {
        error_ = "a guard would call " + trace::describe_object(callable.object);
      }
    }
    if (value.kind == NodeKind::Tuple && value.object != nullptr && !is_plain_callable(value.object)) {
      error_ = "a guard would make a " + trace::describe_object(value.object);
    }
  }

  void add_fact(int32_t index) {
    const trace::Guard& guard = trace_.guards[index];
    GuardOp op;
    op.kind = static_cast<uint8_t>(guard.fact);
    op.is_fact = true;
    op.slot = slot_of_[guard.value];
    op.object = guard.object;
    if (guard.fact == FactKind::Same || guard.fact == FactKind::Different) {
      op.n = slot_of_[guard.n];
    } else if (guard.n > std::numeric_limits<int32_t>::max() || guard.n < 0) {
      error_ = "a guard has the number " + std::to_string(guard.n);
      return;
    } else {
      op.n = static_cast<int32_t>(guard.n);
    }
    code_.ops.push_back(op);
    code_.origins.push_back(index);
  }

  void index_users() {
    std::vector<uint32_t>& first = code_.first_user;
    first.assign(static_cast<size_t>(code_.slot_count()) + 1, 0);
    auto for_each_slot = [&](const GuardOp& op, auto function) {
      for (int32_t slot : code_.operands(op)) function(slot);
      if (op.is_fact && (op.fact() == FactKind::Same || op.fact() == FactKind::Different)) function(op.n);
    };
    for (const GuardOp& op : code_.ops) {
      for_each_slot(op, [&](int32_t slot) { first[slot + 1]++; });
    }
    for (size_t i = 1; i < first.size(); i++) first[i] += first[i - 1];
    code_.users.resize(first.back());
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (size_t i = 0; i < code_.ops.size(); i++) {
      for_each_slot(code_.ops[i], [&](int32_t slot) { code_.users[next[slot]++] = static_cast<int32_t>(i); });
    }
  }

  const trace::Trace& trace_;
  GuardCode& code_;
  std::vector<uint8_t> is_needed_;
  std::vector<int32_t> slot_of_;
  std::string error_;
};

bool run_operation_op(const GuardCode& code, const GuardOp& op, PyObject** values, Temporaries& temporaries) {
  constexpr size_t kInlineCount = 16;
  PyObject* inline_operands[kInlineCount];
  std::vector<PyObject*> more;
  PyObject** operands = inline_operands;
  const std::span<const int32_t> slots = code.operands(op);
  if (slots.size() > kInlineCount) {
    more.resize(slots.size());
    operands = more.data();
  }
  for (size_t i = 0; i < slots.size(); i++) {
    operands[i] = values[slots[i]];
    if (operands[i] == nullptr) return false;
  }
  if (!is_plain_operation(op.node(), operands, slots.size())) return false;
  PyObject* result = run_operation(op.node(), op.n, op.object, operands, slots.size());
  if (result == nullptr) {
    PyErr_Clear();
    return false;
  }
  temporaries.add(result);
  values[op.slot] = result;
  return true;
}

}  // namespace

std::string build_guard_code(const trace::Trace& trace, std::span<const ValueId> kept, GuardCode* code) {
  return Builder(trace, code).build(kept);
}

bool run_guard_op(const GuardCode& code, const GuardOp& op, PyObject* const* args, PyObject** values,
                  Temporaries& temporaries) {
  if (op.is_fact) {
    const FactKind fact = op.fact();
    const host::TensorMeta* meta = trace::has_meta(fact) ? code.trace->tensor_metas[op.n].get() : nullptr;
    PyObject* other = fact == FactKind::Same || fact == FactKind::Different ? values[op.n] : nullptr;
    return check_fact(fact, values[op.slot], op.object, op.n, meta, other);
  }
  switch (trace::category_of(op.node())) {
    case Category::Root:
      values[op.slot] = args[op.n];
      return true;
    case Category::Read: {
      const std::span<const int32_t> from = code.operands(op);
      const ReadResult result = from.size() == 1 ? read_value(op.node(), op.n, op.object, values[op.operand])
                                                 : read_item_by_identity(values[from[0]], values[from[1]]);
      if (result.is_new && result.object != nullptr) temporaries.add(result.object);
      values[op.slot] = result.object;
      return !result.has_failed;
    }
    case Category::Py:
    case Category::Alloc:
      return run_operation_op(code, op, values, temporaries);
    case Category::Mutate:
    case Category::Tensor:
    case Category::State:
    case Category::Sync:
      break;
  }
  REPRISE_UNREACHABLE(std::string("not an operation of a guard program: ") + trace::text_of(op.node()));
}

std::string print_guard_code(const GuardCode& code, std::span<const int32_t> marked) {
  std::string text;
  size_t next_mark = 0;
  for (size_t i = 0; i < code.ops.size(); i++) {
    const GuardOp& op = code.ops[i];
    const bool is_marked = next_mark < marked.size() && marked[next_mark] == static_cast<int32_t>(i);
    if (is_marked) next_mark++;
    text += is_marked ? "* " : "  ";
    if (op.is_fact) {
      text += "check " + trace::describe_guard(*code.trace, code.trace->guards[code.origins[i]]) + "\n";
    } else {
      text += "s" + std::to_string(op.slot) + " = " + trace::describe_value(*code.trace, code.origins[i]) + "\n";
    }
  }
  return text;
}

}  // namespace reprise::guards
