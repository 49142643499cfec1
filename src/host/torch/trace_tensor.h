// Trace tensors: run torch callables without data and tell an OpSink every operation that reaches a backend.
//
// A trace tensor is a TensorImpl with sizes, strides and a storage without memory that its views share; it carries the
// number of its value. Autograd, autocast, functorch and composite operators act on it as on any tensor; below them a
// boxed fallback (dispatch key Fake) catches the operation, finds the metadata of its results and reports it.
// Metadata sources in order: the sink's rule, the context's memo, the operation itself on zeros (exact, imports
// nothing), torch's meta kernel (Python: slow, imports modules; the last resort).
//
// A TraceRun saves all torch state of the thread and the process that callables may change (thread-local state, default
// dtype, random state) and gives it back at its end. The GIL is held at every call here; one run at a time in a
// process. PyObject arguments are borrowed, results are new references; null with a Python exception set on failure.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/torch/op_sink.h"

namespace reprise::host {

enum class VerifyMode : uint8_t {
  Off,
  Kernel,  // every rule and memo result is compared with the operation on zeros
  Meta,    // ... and with torch's meta kernel
};

struct TraceOptions {
  bool use_rules = true;
  bool use_memo = true;
  bool use_zeros = true;
  VerifyMode verify = VerifyMode::Off;
};

struct TraceStatistics {
  int64_t rule_count = 0;
  int64_t memo_count = 0;
  int64_t zeros_count = 0;
  int64_t meta_count = 0;
  int64_t fallback_time_ns = 0;  // measured only if is_timed
  bool is_timed = false;
  std::vector<std::string> mismatches;    // found by verify
  std::vector<std::string> without_rule;  // operators that asked torch; each once
};

/// What runs share: the memo. One for each CompileContext; not thread-safe.
class TraceContext {
 public:
  TraceContext();
  ~TraceContext();
  TraceContext(const TraceContext&) = delete;
  TraceContext& operator=(const TraceContext&) = delete;

  TraceOptions options;
  TraceStatistics statistics;

  struct Memo;
  Memo& memo() { return *memo_; }

 private:
  std::unique_ptr<Memo> memo_;
};

/// Grad mode, autocast, functorch levels, default dtype ... of a thread, to run under again.
class EntryState {
 public:
  EntryState();
  static EntryState capture();
  struct State;
  const State* state() const { return state_.get(); }

 private:
  std::shared_ptr<const State> state_;
};

/// Torch's state of this thread and the default random generators as they are now, to be put back.
class UndoPoint {
 public:
  UndoPoint();
  ~UndoPoint();
  UndoPoint(const UndoPoint&) = delete;
  UndoPoint& operator=(const UndoPoint&) = delete;
  void restore() const;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

/// Real tensors and objects that a run met; they outlive the run. Destroy with the GIL held.
class TraceConstants {
 public:
  TraceConstants();
  ~TraceConstants();
  TraceConstants(TraceConstants&&) noexcept;
  TraceConstants& operator=(TraceConstants&&) noexcept;
  size_t size() const;
  struct Values;
  Values& values() { return *values_; }
  const Values& values() const { return *values_; }

 private:
  std::unique_ptr<Values> values_;
};

/// What an input looks like. Holds no tensor; `storage` only tells inputs that were described together which of them
/// share one.
struct TraceInput {
  TraceValueMeta meta;
  const void* storage = nullptr;
  size_t storage_bytes = 0;
  bool is_wrapped_number = false;
  bool requires_grad = false;
  bool is_leaf = true;
  bool is_view = false;
  bool is_supported = false;  // strided and plain
};
TraceInput describe_input(PyObject* tensor);

/// What tells an input of equal metadata from another.
struct InputIdentity {
  const void* storage = nullptr;
  int64_t storage_offset = 0;  // in elements
  bool is_leaf = true;
  bool is_view = false;
};
/// Of what describe_input() supports.
InputIdentity identify_input(PyObject* tensor);
/// Would something run when a gradient of the tensor is computed: a hook of its own, or one that keeps the gradient?
bool has_gradient_hooks(PyObject* tensor);
/// retain_grad() was called.
bool keeps_gradient(PyObject* tensor);

/// What a run may know of a tensor of its own.
struct TracedTensor {
  TraceValueId value = kNoTraceValue;  // kNoTraceValue: not a trace tensor
  int32_t storage = -1;
  bool requires_grad = false;
  bool is_leaf = true;
  bool has_new_history = false;  // its gradient function was made by the callables
  bool is_plain = true;          // its class is torch.Tensor
  uint32_t version = 0;
};

class TraceRun {
 public:
  /// Under `entry` (the thread's own state if it is empty).
  TraceRun(TraceContext& context, OpSink& sink, const EntryState& entry);
  ~TraceRun();
  TraceRun(const TraceRun&) = delete;
  TraceRun& operator=(const TraceRun&) = delete;

  /// A trace tensor like `input`; inputs over one storage get one trace storage. Where the input is no leaf, in-place
  /// operations on it are legal.
  PyObject* add_input(const TraceInput& input);
  /// A torch.SymFloat, SymInt or SymBool for a number that differs from run to run, and its value.
  PyObject* add_number(TraceValueKind kind, TraceValueId& value);
  /// What the last backward brought to input `index` (in order of add_input), the callables' own ones before
  /// run_backward(); kNoTraceValue: nothing.
  TraceValueId input_gradient(size_t index) const;

  /// `.grad` of a traced leaf: autograd inside of the callables accumulates there. nullptr: none (no exception is set).
  void set_gradient(PyObject* leaf, PyObject* gradient);
  PyObject* get_gradient(PyObject* leaf) const;

  TracedTensor describe(PyObject* tensor) const;
  /// Of this thread, now.
  bool is_grad_mode() const;

  /// Runs the autograd engine from `roots` (trace tensors). A fresh tangent is made for each, like the root or with
  /// `strides[i]` if not empty, and its value appended to `tangents`.
  bool run_backward(std::span<PyObject* const> roots, std::span<const std::vector<int64_t>> strides,
                    std::vector<TraceValueId>& tangents);

  /// For models of the recorder: `tensor.item()` as torch.SymFloat, SymInt or SymBool, or a plain number if known.
  PyObject* item(PyObject* tensor);
  TraceValueId get_rng_state();
  void set_rng_state(TraceValueId state);

  /// Why a callable could not be traced; empty if it failed by itself (its Python exception says how).
  const std::string& failure() const;
  TraceConstants take_constants();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

/// Empty, or why nothing can be traced: someone else took the dispatch key, or a run is on.
std::string find_trace_obstacle();

/// Another thread traces a region: nothing can be traced here now, but soon.
bool is_traced_elsewhere();

}  // namespace reprise::host
