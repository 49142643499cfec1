#include "test.h"
#include "types/device.h"
#include "types/dtype.h"

using namespace reprise::types;

TEST("every dtype is found by its name") {
  int count = 0;
#define X(name, text, size_bytes, kind)                            \
  EXPECT(find_dtype(text) == DType::name);                         \
  EXPECT_EQ(get_dtype_name(DType::name), text);                    \
  EXPECT_EQ(get_size_bytes(DType::name), std::size_t{size_bytes}); \
  ++count;
#include "types/dtypes.def"
#undef X
  EXPECT_EQ(count, 17);
  EXPECT(!find_dtype("float33").has_value());
}

TEST("the kind of a dtype decides what it counts as") {
  EXPECT(is_integral(DType::Bool));
  EXPECT(is_integral(DType::Int64));
  EXPECT(!is_integral(DType::Float16));
  EXPECT(is_float(DType::Float8E5M2));
  EXPECT(is_complex(DType::Complex64));
  EXPECT(!is_float(DType::Complex64));
}

TEST("a device reads back the name that it prints") {
  for (const Device device : {Device{}, Device{DeviceKind::Cuda, 3}, Device{DeviceKind::Meta}}) {
    EXPECT(find_device(get_device_name(device)) == device);
  }
  EXPECT(find_device("cuda") == (Device{DeviceKind::Cuda, 0}));
  for (const char* name : {"", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "xpu:0"}) {
    EXPECT(!find_device(name).has_value());
  }
}
