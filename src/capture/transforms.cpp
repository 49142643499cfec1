// The transforms of torch.func (vmap, grad, vjp, jacrev ...): Python of PyTorch's own that puts levels on a stack,
// wraps tensors and calls the program's function. They are recorded as any function. No frame is left inside, since
// tensors mean something else under a level. A recording that ends there is put off, and one that ends there again
// makes the transform one call that is made again each time.
#include "capture/recorder.h"
#include "capture/type_names.h"

namespace reprise::capture {

namespace {

/// The first transform of a process imports modules and makes tables.
constexpr int kTries = 3;

}  // namespace

Outcome Recorder::call_transform(Operand function, const Operand* args, int n, PyObject* kwnames, Operand* out) {
  const void* place = PyFunction_GET_CODE(function.object);
  if (top_ != nullptr && top_->instruction != nullptr)
    place = reinterpret_cast<const char*>(top_->code) + top_->instruction->unit;
  const auto tries = options_.whole_functions->find(place);
  if (!options_.takes_transforms || (tries != options_.whole_functions->end() && tries->second >= kTries))
    return call_repeated(function, args, n, kwnames, out);
  const size_t first_item = trace_->items.size();
  ModeScope mode(*this, ResumeMode::Never);
  function_codes_.push_back(place);
  is_in_transform_ = true;
  const Outcome outcome = call_function(function, args, n, kwnames, out);
  is_in_transform_ = false;
  if (outcome == Outcome::Raised && active_) lose("a call of " + callable_name(function.object) + " that raised");
  if (!active_) {
    out->id = kNoValue;
  } else {
    const auto last_item = static_cast<int32_t>(trace_->items.size()) - 1;
    trace_->transforms.push_back({static_cast<int32_t>(first_item), last_item, place});
  }
  function_codes_.pop_back();
  return outcome;
}

}  // namespace reprise::capture
