// Runs a Plan in tests: kernels by the interpreter, library calls by whoever the test names. Memory is bytes.
//
// Fresh memory and the arena are filled with 0xa5, so that what reads before it writes shows. Kernels are verified
// before they run; units are run in two halves, to see that ranges may be split.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "schedule/plan.h"

namespace reprise::test {

struct RunValue {
  std::shared_ptr<std::vector<std::uint8_t>> storage;  // null: a number
  types::DType dtype = types::DType::Float32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;  // elements
  std::int64_t bits = 0;    // of a number: int64, or a double's

  std::uint8_t* data() const {
    return storage->data() + offset * static_cast<std::int64_t>(types::get_size_bytes(dtype));
  }
  std::int64_t count() const;
  // Byte offsets (in the storage) of all elements in row-major order.
  std::vector<std::int64_t> list_places() const;
  bool shares_arena = false;
};

void copy_elements(const RunValue& to, const RunValue& from);  // the same dtype and sizes

class ProgramRunner {
 public:
  explicit ProgramRunner(const schedule::Plan& plan) : plan_(plan), slots_(plan.program.slots.size()) {}

  // Fills the results of the step through result(); "" or what went wrong.
  std::function<std::string(ProgramRunner&, const program::Step&)> call_library;

  // Runs kernel `code` of the plan for some units, instead of the interpreter.
  std::function<void(std::size_t code, void* const* buffers, const std::int64_t* words, std::int64_t begin,
                     std::int64_t end)>
      run_kernel;

  // "" if it ran; then results() are those of the return step.
  std::string run(const std::vector<RunValue>& inputs);

  RunValue& slot(program::SlotId id) { return slots_[id.index()]; }
  const program::Slot& get_row(program::SlotId id) const { return plan_.program.get(id); }
  RunValue make(program::SlotId id) const;  // fresh memory for the slot
  const std::vector<RunValue>& results() const { return results_; }

 private:
  std::string launch(const program::Step& step);

  const schedule::Plan& plan_;
  std::vector<RunValue> slots_;
  std::vector<RunValue> results_;
  std::shared_ptr<std::vector<std::uint8_t>> arena_;
};

}  // namespace reprise::test
