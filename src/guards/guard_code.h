// The flat code of a guard program: pre nodes and entry guards of a trace as operations over slots, in trace order.
//
// Plain data, immutable once built. Objects are borrowed from the trace.
#pragma once

#include <Python.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace reprise::guards {

/// One operation: a node that fills `slot`, or a fact about `slot`.
struct GuardOp {
  uint8_t kind = 0;  // NodeKind or FactKind
  bool is_fact = false;
  uint16_t operand_count = 0;
  int32_t slot = -1;
  int32_t operand = -1;  // the slot of the only operand, or where the slots stand in the operand pool
  int32_t n = 0;         // the payload; for Same and Different the other slot
  PyObject* object = nullptr;

  trace::NodeKind node() const { return static_cast<trace::NodeKind>(kind); }
  trace::FactKind fact() const { return static_cast<trace::FactKind>(kind); }
};

/// References that one check made and nobody else holds; dropped with it.
class Temporaries {
 public:
  Temporaries() = default;
  Temporaries(const Temporaries&) = delete;
  Temporaries& operator=(const Temporaries&) = delete;
  ~Temporaries() {
    for (size_t i = 0; i < count_; i++) Py_DECREF(inline_[i]);
    for (PyObject* object : more_) Py_DECREF(object);
  }
  /// Steals the reference.
  void add(PyObject* object) {
    if (count_ < kInlineCount) {
      inline_[count_++] = object;
    } else {
      more_.push_back(object);
    }
  }

 private:
  static constexpr size_t kInlineCount = 48;
  PyObject* inline_[kInlineCount];
  size_t count_ = 0;
  std::vector<PyObject*> more_;
};

struct GuardCode {
  const trace::Trace* trace = nullptr;
  std::vector<GuardOp> ops;
  std::vector<int32_t> origins;  // of each op: an index in Trace::guards, or a value id
  std::vector<int32_t> operand_pool;
  std::vector<PyObject*> initial;    // by slot: the constant, or nullptr
  size_t kept_count = 0;             // the first slots are the kept values, in order
  std::vector<uint32_t> first_user;  // by slot: rows of `users`
  std::vector<int32_t> users;        // ops that look at a slot, in order

  int32_t slot_count() const { return static_cast<int32_t>(initial.size()); }
  /// Slots of an op's operands; the slot itself for a fact.
  std::span<const int32_t> operands(const GuardOp& op) const {
    if (op.is_fact) return {&op.slot, 1};
    if (op.operand_count == 0) return {};
    return {op.operand_count == 1 ? &op.operand : operand_pool.data() + op.operand, op.operand_count};
  }
  std::span<const int32_t> users_of(int32_t slot) const {
    return {users.data() + first_user[slot], first_user[slot + 1] - first_user[slot]};
  }
};

/// `kept`: pre values that steps and exits need. Returns an empty text, or why the trace cannot be guarded.
std::string build_guard_code(const trace::Trace& trace, std::span<const trace::ValueId> kept, GuardCode* code);

/// Executes one operation. false: the fact does not hold, or a read met an object that it is not for.
bool run_guard_op(const GuardCode& code, const GuardOp& op, PyObject* const* args, PyObject** values,
                  Temporaries& temporaries);

/// One operation a line; a `*` stands before those in `marked`, which are in order.
std::string print_guard_code(const GuardCode& code, std::span<const int32_t> marked);

}  // namespace reprise::guards
