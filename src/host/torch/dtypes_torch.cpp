// Dtypes and devices between torch and types/.
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "host/torch/op_sink.h"

namespace reprise::host {

namespace {

struct Row {
  types::DType dtype;
  c10::ScalarType torch;
};
constexpr Row kRows[] = {
    {types::DType::Bool, c10::ScalarType::Bool},
    {types::DType::UInt8, c10::ScalarType::Byte},
    {types::DType::UInt16, c10::ScalarType::UInt16},
    {types::DType::UInt32, c10::ScalarType::UInt32},
    {types::DType::UInt64, c10::ScalarType::UInt64},
    {types::DType::Int8, c10::ScalarType::Char},
    {types::DType::Int16, c10::ScalarType::Short},
    {types::DType::Int32, c10::ScalarType::Int},
    {types::DType::Int64, c10::ScalarType::Long},
    {types::DType::Float8E4M3FN, c10::ScalarType::Float8_e4m3fn},
    {types::DType::Float8E5M2, c10::ScalarType::Float8_e5m2},
    {types::DType::Float16, c10::ScalarType::Half},
    {types::DType::BFloat16, c10::ScalarType::BFloat16},
    {types::DType::Float32, c10::ScalarType::Float},
    {types::DType::Float64, c10::ScalarType::Double},
    {types::DType::Complex64, c10::ScalarType::ComplexFloat},
    {types::DType::Complex128, c10::ScalarType::ComplexDouble},
};

}  // namespace

std::optional<types::DType> dtype_of_torch(int torch_number) {
  for (const Row& row : kRows) {
    if (static_cast<int>(row.torch) == torch_number) return row.dtype;
  }
  return std::nullopt;
}

int torch_number_of(types::DType dtype) {
  static_assert(std::size(kRows) == 17);
  const Row& row = kRows[static_cast<size_t>(dtype)];
  return static_cast<int>(row.torch);
}

std::optional<types::Device> device_of_torch(int type, int index) {
  const auto number = static_cast<int16_t>(index < 0 ? 0 : index);
  switch (static_cast<c10::DeviceType>(type)) {
    case c10::DeviceType::CPU:
      return types::Device{types::DeviceKind::Cpu, 0};
    case c10::DeviceType::CUDA:
      return types::Device{types::DeviceKind::Cuda, number};
    case c10::DeviceType::Meta:
      return types::Device{types::DeviceKind::Meta, 0};
    default:
      return std::nullopt;
  }
}

std::pair<int, int> torch_numbers_of(types::Device device) {
  switch (device.kind) {
    case types::DeviceKind::Cpu:
      return {static_cast<int>(c10::DeviceType::CPU), -1};
    case types::DeviceKind::Cuda:
      return {static_cast<int>(c10::DeviceType::CUDA), device.index};
    case types::DeviceKind::Meta:
      return {static_cast<int>(c10::DeviceType::Meta), -1};
  }
  return {0, -1};
}

}  // namespace reprise::host
