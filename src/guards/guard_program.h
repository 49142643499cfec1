// GuardProgram: decides whether an entry fits a call, and reads the pre values that the entry's steps need.
//
// Built from a trace's pre nodes and entry guards. Runs natively: no Python code, no rich comparison but of exact
// scalars. The first success leaves heap stamps (stamps.h), after which an unchanged heap is checked by one pass over a
// packed array of words. The essay with the rules is at the top of guard_program.cpp.
//
// Ownership: objects in the program (constants, keys, types, expected values) belong to the trace, which must outlive
// it. Values read from the heap are borrowed from their parents. Threads: the GIL is held and no Python code runs, so a
// check is atomic.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "guards/guard_code.h"
#include "guards/stamps.h"
#include "trace/trace.h"

namespace reprise::guards {

class GuardProgram {
 public:
  GuardProgram();
  ~GuardProgram();
  GuardProgram(const GuardProgram&) = delete;
  GuardProgram& operator=(const GuardProgram&) = delete;

  /// `kept` lists the pre values that steps and exits need. Returns an empty text, or why the trace cannot be guarded.
  std::string build(const trace::Trace& trace, std::span<const trace::ValueId> kept);

  /// `args` has the layout of the root frame's localsplus: borrowed, NULL where empty. On success `kept_values[i]` is a
  /// new reference to the value of `kept[i]`, or NULL. On failure nothing is written. NULL: the answer alone is wanted.
  bool check(PyObject* const* args, PyObject** kept_values);

  struct Failure {
    enum Kind : uint8_t { None, State, TypeVersion, TypeLookup, Fact, Read };
    Kind kind = None;
    int32_t index = -1;  // TypeVersion: in Trace::type_versions; TypeLookup: in Trace::type_lookups; Fact: in
                         // Trace::guards; Read: a value id
  };
  /// Of the last check that failed.
  const Failure& failure() const { return failure_; }
  /// `self.scale == 1.5`; empty if no check has failed.
  std::string describe_failure() const;
  /// Runs the whole program without stamps and says what fails and what was found; empty if nothing does. Slow.
  std::string explain(PyObject* const* args);

  struct Varying {
    trace::ValueId value;
    uint64_t dimensions;  // that are not those of the recording; bit 0 for an int
  };
  /// Whether sizes of tensors and values of ints are all that keeps these arguments from the entry, and which. Slow.
  bool find_varying(PyObject* const* args, std::vector<Varying>* found);

  /// Forgets all heap stamps: the next check runs everything.
  void drop_stamps();

  struct Statistics {
    uint64_t full_passes = 0;     // everything was executed
    uint64_t stamped_passes = 0;  // stamps decided
    uint64_t repairs = 0;         // stamps that had moved without changing a fact
    size_t op_count = 0;
    size_t stamp_set_count = 0;
    // Of the stamp set used last.
    size_t word_count = 0;
    size_t slow_op_count = 0;
    size_t tensor_count = 0;
  };
  Statistics statistics() const;

  /// One operation a line; those that run at every check although stamps hold are marked.
  std::string print() const;

  const trace::Trace& trace() const { return *code_.trace; }
  const GuardCode& code() const { return code_; }
  size_t size_bytes() const;

 private:
  struct VersionWord {
    const uint32_t* address;
    uint32_t expected;
  };

  bool check_unlogged(PyObject* const* args, PyObject** kept_values);
  bool check_state();
  bool check_type_versions();
  bool renew_type_version(size_t index);
  bool run_all(PyObject* const* args, PyObject** values, Temporaries& temporaries);
  void keep_values(PyObject* const* values, PyObject** kept_values) const;
  void make_stamp_set(std::span<PyObject* const> values);
  void fail_at(int32_t op);
  PyObject* code_object() const;

  GuardCode code_;
  std::vector<VersionWord> type_words_;
  host::StateWord state_now_;
  Failure failure_;
  std::vector<std::unique_ptr<StampSet>> stamp_sets_;  // most recently used first
  std::vector<PyObject*> scratch_;                     // values of a full pass
  std::vector<uint8_t> may_be_root_;                   // by argument
  std::vector<uint32_t> root_changes_;                 // by argument: sets made because it was another object
  bool is_running_ = false;
  uint64_t full_passes_ = 0, stamped_passes_ = 0, repairs_of_dropped_sets_ = 0;
  uint32_t stamp_sets_made_ = 0;
};

}  // namespace reprise::guards
