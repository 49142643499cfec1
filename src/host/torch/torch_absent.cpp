// Builds without torch: nothing is a tensor, nothing is a callable of torch's, all states are equal.
#include <utility>

#include "host/torch/callables.h"
#include "host/torch/leaves.h"
#include "host/torch/result_order.h"
#include "host/torch/state_word.h"
#include "host/torch/tensor.h"
#include "host/torch/tensor_array.h"

namespace reprise::host {

bool has_way_to(PyObject*, PyObject*) { return false; }
ResultOrder find_result_order(std::span<PyObject* const>) { return {}; }
LeavesOfGraph::LeavesOfGraph(PyObject*) {}
bool LeavesOfGraph::has(PyObject*) const { return false; }
void LeavesOfGraph::add_written(std::unordered_set<void*>*) const {}

PyTypeObject* tensor_type() { return nullptr; }
PyTypeObject* parameter_type() { return nullptr; }
bool is_tensor(PyObject*) noexcept { return false; }
bool is_plain_tensor_type(const PyTypeObject*) noexcept { return false; }
bool is_plain_tensor(PyObject*) noexcept { return false; }
void* tensor_impl(PyObject*) noexcept { return nullptr; }
void* tensor_storage(PyObject*) noexcept { return nullptr; }
bool may_share_memory(PyObject*, PyObject*) noexcept { return true; }

bool TensorMeta::operator==(const TensorMeta& other) const { return header == other.header; }
uint64_t TensorMeta::hash() const { return header; }
TensorMetaRef make_tensor_meta(PyObject*) { return std::make_shared<TensorMeta>(); }
bool check_tensor_meta(const TensorMeta&, PyObject*) noexcept { return false; }
bool check_tensor_header(const TensorMeta&, PyObject*) noexcept { return false; }
std::span<const int64_t> tensor_sizes(PyObject*) noexcept { return {}; }
std::span<const int64_t> tensor_strides(PyObject*) noexcept { return {}; }
bool is_whole_number(PyObject*) noexcept { return false; }
bool is_size_type(PyObject*) noexcept { return false; }
PyObject* read_tensor_size(PyObject*, int32_t) {
  PyErr_SetString(PyExc_TypeError, "sizes without torch");
  return nullptr;
}
std::string describe_tensor_meta(const TensorMeta&) { return "no torch"; }
std::string describe_meta_mismatch(const TensorMeta&, PyObject*) { return "no torch"; }

bool TensorArray::add(PyObject*) { return false; }
size_t TensorArray::find_mismatch() const noexcept { return entries_.size(); }
void TensorArray::clear() noexcept {}

StateWord capture_state_word() noexcept { return {}; }
void capture_state_word(StateWord& word) noexcept { word = {}; }
std::string describe_state_difference(const StateWord&, const StateWord&) { return {}; }
bool is_grad_mode() noexcept { return true; }
bool is_cuda_initialised() noexcept { return false; }
bool has_user_modes(const StateWord&) noexcept { return false; }
bool has_functorch_levels(const StateWord&) noexcept { return false; }
RecordedState RecordedState::capture() { return {}; }
RecordedState::RecordedState(RecordedState&& other) noexcept = default;
RecordedState& RecordedState::operator=(RecordedState&& other) noexcept = default;
RecordedState::~RecordedState() = default;
bool RecordedState::is_alive() const noexcept { return true; }
GradModeGuard::GradModeGuard(bool) noexcept : previous_(true) { static_cast<void>(previous_); }
GradModeGuard::~GradModeGuard() = default;

const char* text_of(TorchCallableKind kind) {
  switch (kind) {
#define KIND(name, text)        \
  case TorchCallableKind::name: \
    return text;
#include "host/torch/torch_callables.def"
  }
  return "";
}
const char* text_of(TensorAttributeKind) { return "unknown"; }
TorchCallable classify_torch_callable(PyObject*) { return {}; }
CallEffects find_effects(const TorchCallable&) { return {}; }
bool only_reads_data(const TorchCallable&) { return false; }
bool has_data_dependent_sizes(const TorchCallable&, PyObject* const*, size_t, PyObject*) { return false; }
bool has_data_dependent_result(PyObject*) { return true; }
bool lacks_device(const TorchCallable&) { return false; }
TensorAttribute classify_tensor_attribute(PyObject*) { return {}; }
bool prepare_torch_callables() { return true; }
std::vector<const char*> find_unresolved_torch_rows() { return {}; }

}  // namespace reprise::host
