// Device: where a tensor lives, as torch prints it: "cpu", "cuda:1", "meta".
//
// Independent of torch. Other devices of torch are unsupported: find_device() gives nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/export.h"

namespace reprise::types {

enum class DeviceKind : std::uint8_t { Cpu, Cuda, Meta };

struct Device {
  DeviceKind kind = DeviceKind::Cpu;
  std::int16_t index = 0;  // 0 for devices that have no number

  constexpr bool operator==(const Device&) const = default;
};

REPRISE_EXPORT std::string get_device_name(Device device);
REPRISE_EXPORT std::optional<Device> find_device(std::string_view name);

}  // namespace reprise::types
