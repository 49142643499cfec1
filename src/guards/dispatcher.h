// Dispatcher: which of the many entries of a place can fit this call?
//
// Entries of one place differ in few facts: an int argument's value, a tensor's size, the class of `self`, a mode flag.
// The dispatcher finds (path, fact) pairs that tell the programs apart, reads those paths once a call and hashes what
// it finds; only the programs in that bucket, most recently used first, are worth a full check. It never decides: a
// candidate must still pass its own guard program.
//
// Ownership: borrows the programs it was built from and their objects until the next rebuild. Threads: the GIL is held;
// no Python code runs.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "guards/guard_program.h"

namespace reprise::guards {

class Dispatcher {
 public:
  Dispatcher();
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  /// Forgets what it knew and learns these programs; candidates are indices into `programs`.
  void rebuild(std::span<GuardProgram* const> programs);
  /// The programs that may match, best guess first. Valid until the next call of a member.
  std::span<const int32_t> find_candidates(PyObject* const* args);
  /// A candidate matched: it comes first next time.
  void note_hit(int32_t index);

 private:
  struct Path;
  struct Node;
  struct Learner;

  PyObject* read_path(int32_t path, PyObject* const* args) const;

  std::vector<Path> paths_;  // parents precede children
  std::unique_ptr<Node> root_;
  Node* last_ = nullptr;  // the leaf of the last look-up
};

}  // namespace reprise::guards
