#include "driver/region_inputs.h"

#include <algorithm>
#include <bit>

#include "host/torch/tensor.h"

namespace reprise::driver {

namespace {

// Ints, floats, None and tuples of them. False: it is something else.
bool append_number(std::vector<int64_t>& key, PyObject* number) {
  int overflow = 0;
  if (PyLong_Check(number)) {
    key.push_back(PyLong_AsLongLongAndOverflow(number, &overflow));
    return overflow == 0;
  }
  if (PyFloat_CheckExact(number)) {
    key.push_back(std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(number)));
    return true;
  }
  if (number == Py_None) {
    key.push_back(-1);
    return true;
  }
  if (!PyTuple_Check(number)) return false;
  key.push_back(PyTuple_GET_SIZE(number));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(number); i++) {
    if (!append_number(key, PyTuple_GET_ITEM(number, i))) return false;
  }
  return true;
}

}  // namespace

const InputFacts& FactsFinder::find(PyObject* const* tensors, size_t count) {
  by_storage_.clear();
  facts_.is_leaf.clear();
  facts_.is_view.clear();
  facts_.first_of.resize(count);
  facts_.distances.clear();
  for (size_t i = 0; i < count; i++) {
    const host::InputIdentity input = host::identify_input(tensors[i]);
    by_storage_.emplace_back(input.storage, static_cast<uint32_t>(i));
    facts_.distances.push_back(input.storage_offset);
    facts_.is_leaf.push_back(input.is_leaf);
    facts_.is_view.push_back(input.is_view);
  }
  std::sort(by_storage_.begin(), by_storage_.end());
  for (size_t i = 0, first = 0; i < count; i++) {
    if (by_storage_[i].first != by_storage_[first].first) first = i;
    facts_.first_of[by_storage_[i].second] = by_storage_[first].second;
  }
  for (size_t i = count; i-- > 0;) facts_.distances[i] -= facts_.distances[facts_.first_of[i]];
  return facts_;
}

std::vector<aot::RegionInput> list_region_inputs(PyObject* const* tensors, size_t count) {
  std::vector<aot::RegionInput> inputs;
  for (size_t i = 0; i < count; i++) {
    inputs.push_back({host::describe_input(tensors[i]), graph::InputKind::Plain, -1, {}});
  }
  return inputs;
}

bool can_be_symbolic(PyObject* number) {
  if (PyFloat_CheckExact(number)) return true;
  int overflow = 0;
  return PyLong_CheckExact(number) && (PyLong_AsLongLongAndOverflow(number, &overflow), overflow == 0);
}

SizeKey::SizeKey(const entry::Entry& entry, const trace::Region& region) : tensor_count_(region.tensors.size()) {
  const std::vector<trace::Value>& values = entry.trace().values;
  for (size_t i = 0; i < tensor_count_; i++) {
    if (values[region.tensors[i]].varies) tensors_.push_back(static_cast<uint32_t>(i));
    depends_on_data_ = depends_on_data_ || values[region.tensors[i]].varies_with_data;
  }
  for (trace::ValueId id : region.numbers) {
    is_size_.push_back(values[id].varies);
    has_sizes_ = has_sizes_ || values[id].varies;
    depends_on_data_ = depends_on_data_ || values[id].varies_with_data;
  }
  has_sizes_ = has_sizes_ || !tensors_.empty();
}

bool SizeKey::make(PyObject* const* operands) {
  values_.clear();
  for (uint32_t i : tensors_) {
    for (int64_t size : host::tensor_sizes(operands[i])) values_.push_back(size);
    for (int64_t stride : host::tensor_strides(operands[i])) values_.push_back(stride);
  }
  for (size_t i = 0; i < is_size_.size(); i++) {
    if (is_size_[i] != 0 && !append_number(values_, operands[tensor_count_ + i])) return false;
  }
  return true;
}

}  // namespace reprise::driver
