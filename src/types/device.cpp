#include "types/device.h"

#include <charconv>

#include "base/check.h"

namespace reprise::types {

std::string get_device_name(Device device) {
  switch (device.kind) {
    case DeviceKind::Cpu:
      return "cpu";
    case DeviceKind::Cuda:
      return "cuda:" + std::to_string(device.index);
    case DeviceKind::Meta:
      return "meta";
  }
  REPRISE_UNREACHABLE("device kind " + std::to_string(static_cast<int>(device.kind)));
}

std::optional<Device> find_device(std::string_view name) {
  if (name == "cpu") return Device{DeviceKind::Cpu};
  if (name == "meta") return Device{DeviceKind::Meta};
  if (name == "cuda") return Device{DeviceKind::Cuda};
  constexpr std::string_view kCudaPrefix = "cuda:";
  if (!name.starts_with(kCudaPrefix)) return std::nullopt;
  name.remove_prefix(kCudaPrefix.size());
  std::int16_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (error != std::errc() || end != name.data() + name.size() || index < 0) return std::nullopt;
  return Device{DeviceKind::Cuda, index};
}

}  // namespace reprise::types
