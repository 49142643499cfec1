#include "host/torch/state_word.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/tensor/python_tensor.h>

#include <atomic>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include "host/torch/state_modes_impl.h"
#include "host/torch/version_torch.h"

namespace reprise::host {

// --- private members of at::Context
// ------------------------------------------------------------------------------------

#define CONTEXT(member, text, form) REPRISE_EXPOSE(Context_##member, at::Context, member);
#include "host/torch/state_word.def"

REPRISE_EXPOSE(Context_sdp_priority_order, at::Context, sdp_priority_order);
REPRISE_EXPOSE(Context_benchmark_limit_cudnn, at::Context, benchmark_limit_cudnn);
REPRISE_EXPOSE(Context_sm_carveout, at::Context, sm_carveout);
REPRISE_EXPOSE(Context_fp32_precision, at::Context, fp32_precision);
REPRISE_EXPOSE(Context_init, at::Context, init_);

namespace {

// --- places: WIDE rows are whole words, the others bytes of the words behind them
// --------------------------------------

#define PRECISION(backend, op, text) k_##backend##_##op,
enum Precision {
#include "host/torch/state_word.def"
  kPrecisionCount
};

#define WIDE(field, text, form, expression) kWide_##field,
enum WidePlace : size_t {
#include "host/torch/state_word.def"
  kWideCount
};

#define BYTE(field, text, form, expression) kByte_##field,
#define CONTEXT(member, text, form) kByte_##member,
#define AUTOCAST(device, text) kByte_autocast_##device,
#define PRECISION(backend, op, text) kByte_precision_##backend##_##op,
#define DEVICE(type, text) kByte_device_##type,
enum BytePlace : size_t {
#include "host/torch/state_word.def"
  kByteCount
};

static_assert(kWideCount + (kByteCount + 7) / 8 <= StateWord::kWordCount, "raise StateWord::kWordCount");

uint8_t byte_of(const StateWord& word, size_t place) noexcept {
  return static_cast<uint8_t>(word.words[kWideCount + place / 8] >> (8 * (place % 8)));
}

// --- capture
// -----------------------------------------------------------------------------------------------------------

// Each of torch's accessors to thread-local state costs 5 ns; the addresses behind them stay for the thread's life.
struct ThreadState : ThreadTls {
  at::Context* context = nullptr;
  const at::Float32Precision* precisions[kPrecisionCount] = {};
};
constinit thread_local ThreadState thread_state;

[[gnu::noinline]] void init_thread_state(ThreadState& state) noexcept {
  static constexpr at::Float32Precision kNone = at::Float32Precision::NONE;
  state.keys = &c10::impl::raw_local_dispatch_key_set;
  state.autograd = &c10::AutogradState::get_tls_state();
  state.functions = &FunctionTls::get_state();
  state.dispatch = &DispatchTls::get_state();
  state.hooks = &at::SavedTensorDefaultHooks::get_tls_state();
  state.context = &at::globalContext();
  // torch sets these entries in place and never inserts or erases one, so addresses of values stay.
  const auto& map = (*state.context).*expose(Context_fp32_precision{});
  const auto find = [&](at::Float32Backend backend, at::Float32Op op) {
    const auto found = map.find({backend, op});
    return found == map.end() ? &kNone : &found->second;
  };
#define PRECISION(backend, op, text) \
  state.precisions[k_##backend##_##op] = find(at::Float32Backend::backend, at::Float32Op::op);
#include "host/torch/state_word.def"
}

inline const ThreadState& find_thread_state() noexcept {
  ThreadState& state = thread_state;
  if (state.context == nullptr) [[unlikely]]
    init_thread_state(state);
  return state;
}

inline bool has_forward_level() noexcept {
#if REPRISE_TORCH_HAS_ANY_FORWARD_LEVEL
  return torch::autograd::ForwardADLevel::has_any_level();
#else
  return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
#endif
}

inline const c10::impl::DeviceGuardImplInterface* find_device_guard(c10::DeviceType type) noexcept {
  return c10::impl::device_guard_impl_registry[static_cast<size_t>(type)].load(std::memory_order_relaxed);
}

// The dtype's code + 1. Backends that are not there can't be autocast, but asking for cpu's and cuda's dtype always
// can.
inline uint8_t autocast_dtype(c10::DeviceType type) noexcept {
  if (type != c10::kCPU && type != c10::kCUDA && find_device_guard(type) == nullptr) return 0;
  return static_cast<uint8_t>(static_cast<int>(at::autocast::get_autocast_dtype(type)) + 1);
}

// Index + 1; 0 as long as torch has not initialised the device type, which asking for the device would do.
inline uint8_t current_device(at::Context& context, c10::DeviceType type) noexcept {
  if (!((context.*expose(Context_init{}))[static_cast<size_t>(type)]).test_once()) return 0;
  const auto* const guard = find_device_guard(type);
  if (guard == nullptr) return 0;
  try {
    return static_cast<uint8_t>(guard->getDevice().index() + 1);
  } catch (...) {
    return 255;
  }
}

template <typename Order>
uint64_t pack_order(const Order& order) noexcept {
  uint64_t packed = 0;
  for (const auto backend : order) packed = packed << 8 | static_cast<uint8_t>(backend);
  return packed;
}

template <typename T>
uint64_t pack_optional(const std::optional<T>& value) noexcept {
  return value.has_value() ? uint64_t{1} << 32 | static_cast<uint32_t>(*value) : 0;
}

template <typename T>
uint8_t pack_byte(const T& value) noexcept {
  return static_cast<uint8_t>(value);
}
template <typename T>
uint8_t pack_byte(const std::atomic<T>& value) noexcept {
  return static_cast<uint8_t>(value.load(std::memory_order_relaxed));
}
inline uint8_t pack_byte(const std::optional<bool>& value) noexcept {
  return static_cast<uint8_t>(value.has_value() ? 1 + *value : 0);
}

}  // namespace

void capture_state_word(StateWord& word) noexcept {
  const ThreadState& state = find_thread_state();
  const c10::impl::PODLocalDispatchKeySet keys = *state.keys;
  const c10::AutogradState& autograd = *state.autograd;
  const FunctionTls& functions = *state.functions;
  const HooksTls& hooks = *state.hooks;
  at::Context& context = *state.context;
  ModeSummary slow;
  if (has_modes(state)) [[unlikely]]
    slow = summarise_modes(state);

  // Bytes are gathered in a register and stored as whole words: a compare of just stored bytes would stall.
  uint64_t gathered = 0;
  const auto put = [&](size_t place, uint8_t value) {
    gathered |= static_cast<uint64_t>(value) << (8 * (place % 8));
    if (place % 8 == 7 || place + 1 == kByteCount) {
      word.words[kWideCount + place / 8] = gathered;
      gathered = 0;
    }
  };
#define WIDE(field, text, form, expression) word.words[kWide_##field] = (expression);
#define BYTE(field, text, form, expression) put(kByte_##field, pack_byte(expression));
#define CONTEXT(member, text, form) put(kByte_##member, pack_byte(context.*expose(Context_##member{})));
#define AUTOCAST(device, text) put(kByte_autocast_##device, autocast_dtype(c10::DeviceType::device));
#define PRECISION(backend, op, text) \
  put(kByte_precision_##backend##_##op, pack_byte(*state.precisions[k_##backend##_##op]));
#define DEVICE(type, text) put(kByte_device_##type, current_device(context, c10::DeviceType::type));
#include "host/torch/state_word.def"
  for (size_t i = kWideCount + (kByteCount + 7) / 8; i < StateWord::kWordCount; ++i) word.words[i] = 0;
}

StateWord capture_state_word() noexcept {
  StateWord word;
  capture_state_word(word);
  return word;
}

// --- in words
// ----------------------------------------------------------------------------------------------------------

namespace {

enum class Form {
  OnOff,
  OptionalOnOff,
  Number,
  OptionalNumber,
  DType,
  AutocastDType,
  DeviceType,
  DeviceIndex,
  Precision,
  MatmulPrecision,
  FunctionState,
  BackendOrder,
  Identity,
  IncludedKeys,
  ExcludedKeys,
};

template <size_t Count>
std::string find_name(const char* const (&names)[Count], uint64_t value) {
  return value < Count ? names[value] : std::to_string(value);
}

std::string value_text(Form form, uint64_t value) {
  static constexpr const char* kOptionalOnOff[] = {"unset", "off", "on"};
  static constexpr const char* kPrecision[] = {"none", "ieee", "tf32", "bf16", "default"};
  static constexpr const char* kMatmul[] = {"highest", "high", "medium"};
  static constexpr const char* kFunctionState[] = {"on", "off for subclasses", "off"};
  switch (form) {
    case Form::OnOff:
      return value ? "on" : "off";
    case Form::OptionalOnOff:
      return find_name(kOptionalOnOff, value);
    case Form::Number:
      return std::to_string(value);
    case Form::OptionalNumber:
      return value >> 32 ? std::to_string(static_cast<int32_t>(value)) : "unset";
    case Form::DType:
      return c10::toString(static_cast<c10::ScalarType>(value));
    case Form::AutocastDType:
      return value ? c10::toString(static_cast<c10::ScalarType>(value - 1)) : "no such device";
    case Form::DeviceType:
      return c10::DeviceTypeName(static_cast<c10::DeviceType>(value), true);
    case Form::DeviceIndex:
      return value ? std::to_string(value - 1) : "not initialised";
    case Form::Precision:
      return find_name(kPrecision, value);
    case Form::MatmulPrecision:
      return find_name(kMatmul, value);
    case Form::FunctionState:
      return find_name(kFunctionState, value);
    case Form::BackendOrder: {
      std::string text;
      for (int shift = 8 * (static_cast<int>(at::num_sdp_backends) - 1); shift >= 0; shift -= 8) {
        text += (text.empty() ? "" : ",") + std::to_string(static_cast<int8_t>(value >> shift));
      }
      return text;
    }
    case Form::Identity:
      return value ? "another" : "none";
    case Form::IncludedKeys:
    case Form::ExcludedKeys:
      break;
  }
  return std::to_string(value);
}

// The name of one bit of a dispatch key set: bits of backends come first, then those of functionalities.
std::string key_name(size_t bit) {
  if (bit < c10::num_backends) return c10::toString(static_cast<c10::BackendComponent>(bit + 1));
  return c10::toString(static_cast<c10::DispatchKey>(bit - c10::num_backends + 1));
}

void add_difference(std::string& out, const std::string& text) {
  if (!out.empty()) out += "; ";
  out += text;
}

// Keys of the autocast family are excluded while autocast is off; everything else is named as torch does.
void add_key_differences(std::string& out, const char* text, bool is_excluded_set, uint64_t recorded, uint64_t now) {
  static constexpr std::string_view kAutocast = "Autocast";
  std::string only_recorded;
  std::string only_now;
  for (size_t bit = 0; bit < 64; ++bit) {
    const uint64_t mask = uint64_t{1} << bit;
    if (((recorded ^ now) & mask) == 0) continue;
    std::string name = key_name(bit);
    if (is_excluded_set && name.starts_with(kAutocast)) {
      std::string device = name.substr(kAutocast.size());
      for (char& letter : device) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
      const bool was_on = (recorded & mask) == 0;
      add_difference(
          out, "autocast for " + device + (was_on ? ": on when recorded, off now" : ": off when recorded, on now"));
      continue;
    }
    std::string& list = recorded & mask ? only_recorded : only_now;
    list += (list.empty() ? "" : ", ") + name;
  }
  if (!only_recorded.empty()) add_difference(out, std::string(text) + ": " + only_recorded + " when recorded, not now");
  if (!only_now.empty()) add_difference(out, std::string(text) + ": " + only_now + " now, not when recorded");
}

void add_value_difference(std::string& out, const char* text, Form form, uint64_t recorded, uint64_t now) {
  if (recorded == now) return;
  if (form == Form::IncludedKeys || form == Form::ExcludedKeys) {
    add_key_differences(out, text, form == Form::ExcludedKeys, recorded, now);
  } else if (form == Form::Identity && recorded != 0 && now != 0) {
    add_difference(out, std::string(text) + ": others than when recorded");
  } else {
    add_difference(out, std::string(text) + ": " + value_text(form, recorded) + " when recorded, " +
                            value_text(form, now) + " now");
  }
}

}  // namespace

std::string describe_state_difference(const StateWord& recorded, const StateWord& now) {
  std::string out;
  const auto add_byte = [&](size_t place, const char* text, Form form) {
    add_value_difference(out, text, form, byte_of(recorded, place), byte_of(now, place));
  };
#define WIDE(field, text, form, expression) \
  add_value_difference(out, text, Form::form, recorded.words[kWide_##field], now.words[kWide_##field]);
#define BYTE(field, text, form, expression) add_byte(kByte_##field, text, Form::form);
#define CONTEXT(member, text, form) add_byte(kByte_##member, text, Form::form);
#define AUTOCAST(device, text) add_byte(kByte_autocast_##device, text, Form::AutocastDType);
#define PRECISION(backend, op, text) add_byte(kByte_precision_##backend##_##op, text, Form::Precision);
#define DEVICE(type, text) add_byte(kByte_device_##type, text, Form::DeviceIndex);
#include "host/torch/state_word.def"
  return out;
}

bool is_grad_mode() noexcept { return c10::GradMode::is_enabled(); }
bool is_cuda_initialised() noexcept { return current_device(at::globalContext(), c10::DeviceType::CUDA) != 0; }

bool has_user_modes(const StateWord& word) noexcept { return byte_of(word, kByte_user_mode_count) != 0; }
bool has_functorch_levels(const StateWord& word) noexcept { return byte_of(word, kByte_functorch_level_count) != 0; }

// --- recorded states
// ---------------------------------------------------------------------------------------------------

RecordedState RecordedState::capture() {
  RecordedState state;
  capture_state_word(state.word_);
  for (PyObject* const object : find_mode_objects(find_thread_state())) {
    PyObject* reference = PyWeakref_NewRef(object, nullptr);
    if (reference == nullptr) {
      PyErr_Clear();
      reference = Py_NewRef(object);
    }
    state.references_.push_back(reference);
  }
  return state;
}

RecordedState::RecordedState(RecordedState&& other) noexcept
    : word_(other.word_), references_(std::exchange(other.references_, {})) {}

RecordedState& RecordedState::operator=(RecordedState&& other) noexcept {
  std::swap(word_, other.word_);
  std::swap(references_, other.references_);
  return *this;
}

RecordedState::~RecordedState() {
  for (PyObject* const reference : references_) Py_DECREF(reference);
}

bool RecordedState::is_alive() const noexcept {
  for (PyObject* const reference : references_) {
    if (!PyWeakref_CheckRef(reference)) continue;
#if PY_VERSION_HEX >= 0x030D0000
    PyObject* object = nullptr;
    if (PyWeakref_GetRef(reference, &object) != 1) return false;
    Py_DECREF(object);
#else
    if (PyWeakref_GET_OBJECT(reference) == Py_None) return false;
#endif
  }
  return true;
}

GradModeGuard::GradModeGuard(bool enabled) noexcept : previous_(c10::GradMode::is_enabled()) {
  c10::GradMode::set_enabled(enabled);
}
GradModeGuard::~GradModeGuard() { c10::GradMode::set_enabled(previous_); }

}  // namespace reprise::host
