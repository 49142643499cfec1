// Everything one compiled callable owns: its options, its places with their entries, its statistics.
//
// Reference counted by hand (GIL): the CompiledFunction holds one reference, and whoever drives or records for the
// context holds another, so that the context outlives a callable that dies during its own call. Exactly one Python
// object, the CompiledFunction, reports the context's Python references to the cycle collector (traverse, clear).
// Threads: all members need the GIL.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/options.h"
#include "host/torch/trace_tensor.h"
#include "kernel/family.h"
#include "runtime/place.h"
#include "runtime/statistics.h"

namespace reprise::runtime {

class CompileRequests;

class CompileContext {
 public:
  /// `backend` is a str ("native", "eager") or a callable; a new reference is taken.
  CompileContext(CompileRequests& requests, base::Options options, PyObject* backend, std::string name);
  CompileContext(const CompileContext&) = delete;
  CompileContext& operator=(const CompileContext&) = delete;

  void retain() { ++reference_count_; }
  void release() {
    if (--reference_count_ == 0) delete this;
  }

  CompileRequests& requests;
  const base::Options options;
  const std::string name;  // of the callable, for messages
  Statistics statistics;
  uint64_t clock = 0;  // grows with every run of an entry
  // What a custom backend has not been seen to refuse.
  bool takes_data_sizes = true, takes_gradients = true;
  std::unordered_map<const void*, int> whole_functions;  // what recordings take as one call: see RecorderOptions
  int32_t branch_count = 0;                              // ever made, since the last reset

  PyObject* backend() const { return backend_; }
  /// Regions become native code (backend "native").
  bool is_native() const;
  /// Regions become graphs of PyTorch's kernels (backend "aot_eager").
  bool is_aot_eager() const;
  /// Sizes that differ between calls are left open by recordings; code of regions is made for each.
  bool has_varying_sizes() const { return options.dynamic != base::Dynamic::False; }
  /// Shared: compiled code traces again for other backwards, and may outlive the context.
  const std::shared_ptr<host::TraceContext>& trace_context();
  /// Shared: the background thread may compile for it when the context is gone.
  const std::shared_ptr<kernel::KernelFamily>& kernel_family() const { return kernel_family_; }
  uint64_t take_size_choice() { return next_size_choice_++; }
  /// The place at a boundary, made when there is none.
  Place& get_place(PyCodeObject* code, int32_t unit);
  /// Null when there is none.
  Place* find_place(PyCodeObject* code, int32_t unit) const;
  /// The places in a code object, or null when there never was one.
  CodePlaces* find_code_places(PyCodeObject* code) const {
    auto found = codes_.find(code);
    return found == codes_.end() ? nullptr : found->second.get();
  }
  /// How many places have entries or want a recording.
  int64_t active_place_count() const { return active_place_count_; }
  /// All places in the order they were made, those behind late guards included.
  std::vector<Place*> list_places() const;
  /// Counts a call, in plain mode, of a function without places. Returns how many there were.
  uint32_t count_plain_call(PyCodeObject* code);
  int32_t take_serial() { return next_serial_++; }
  int32_t take_place_serial() { return next_place_serial_++; }

  /// Drops all entries and forgets what was learned; counted statistics stay.
  void reset();

  // ---- for the cycle collector
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  friend class CodePlaces;
  ~CompileContext();

  std::shared_ptr<host::TraceContext> trace_context_;
  std::shared_ptr<kernel::KernelFamily> kernel_family_ = std::make_shared<kernel::KernelFamily>();
  uint64_t next_size_choice_ = 0;
  PyObject* backend_;                                                     // strong
  std::unordered_map<PyCodeObject*, std::unique_ptr<CodePlaces>> codes_;  // looked up, never iterated for output
  std::unordered_map<PyCodeObject*, uint32_t> plain_call_counts_;         // keys are not alive: only a hint
  int64_t reference_count_ = 1;
  int64_t active_place_count_ = 0;
  int32_t next_place_serial_ = 0;
  int32_t next_serial_ = 0;
};

/// A strong reference to a CompileContext, or none.
class ContextRef {
 public:
  ContextRef() = default;
  explicit ContextRef(CompileContext* context) : context_(context) {
    if (context_ != nullptr) context_->retain();
  }
  ContextRef(const ContextRef& other) : ContextRef(other.context_) {}
  ContextRef(ContextRef&& other) noexcept : context_(other.context_) { other.context_ = nullptr; }
  ContextRef& operator=(ContextRef other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~ContextRef() {
    if (context_ != nullptr) context_->release();
  }

  CompileContext* get() const { return context_; }
  CompileContext* operator->() const { return context_; }
  CompileContext& operator*() const { return *context_; }
  explicit operator bool() const { return context_ != nullptr; }

 private:
  CompileContext* context_ = nullptr;
};

}  // namespace reprise::runtime
