// Bytes of a program: a header (magic, version, size, hash of what follows), then the fields in order, little-endian.
//
// Writer and reader are one description of the fields, visit(), so that they cannot differ.
#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/hash.h"
#include "program/program.h"

namespace reprise::program {
namespace {

constexpr std::uint64_t kMagic = 0x3150'4553'4952'5052;  // "RPRISEP1"
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHeaderBytes = 8 + 4 + 8 + 8;
constexpr int kDeepestList = 16;

class Writer {
 public:
  static constexpr bool kReads = false;

  template <class T>
  void add(const T& number) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&number);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof number);
  }
  bool add_count(std::size_t count) {
    add(static_cast<std::uint64_t>(count));
    return true;
  }
  void add_bytes(const void* from, std::size_t count) {
    const auto* bytes = static_cast<const std::uint8_t*>(from);
    bytes_.insert(bytes_.end(), bytes, bytes + count);
  }
  bool is_ok() const { return true; }
  bool enter() { return true; }
  void leave() {}

  std::vector<std::uint8_t> bytes_;
};

class Reader {
 public:
  static constexpr bool kReads = true;

  Reader(const std::uint8_t* bytes, std::size_t count) : next_(bytes), left_(count) {}

  template <class T>
  void add(T& number) {
    if (!take(sizeof number)) return;
    std::memcpy(&number, next_ - sizeof number, sizeof number);
  }
  // Every element takes a byte at least, so a damaged count cannot ask for much memory.
  std::size_t read_count() {
    std::uint64_t count = 0;
    add(count);
    if (count > left_) is_ok_ = false;
    return is_ok_ ? static_cast<std::size_t>(count) : 0;
  }
  void add_bytes(void* to, std::size_t count) {
    if (take(count) && count > 0) std::memcpy(to, next_ - count, count);
  }
  bool is_ok() const { return is_ok_; }
  void refuse() { is_ok_ = false; }
  bool enter() {
    if (++depth_ > kDeepestList) is_ok_ = false;
    return is_ok_;
  }
  void leave() { --depth_; }
  bool is_at_end() const { return left_ == 0; }

 private:
  bool take(std::size_t count) {
    if (count > left_) is_ok_ = false;
    if (!is_ok_) return false;
    next_ += count;
    left_ -= count;
    return true;
  }

  const std::uint8_t* next_;
  std::size_t left_;
  int depth_ = 0;
  bool is_ok_ = true;
};

template <class Archive, class T>
  requires(std::is_arithmetic_v<std::remove_const_t<T>> && !std::is_same_v<std::remove_const_t<T>, bool>)
void visit(Archive& archive, T& number) {
  archive.add(number);
}

template <class Archive>
void visit(Archive& archive, std::conditional_t<Archive::kReads, bool, const bool>& flag) {
  std::uint8_t byte = flag ? 1 : 0;
  archive.add(byte);
  if constexpr (Archive::kReads) flag = byte != 0;
}

// `count` is the number of rows of the enum.
template <class Archive, class Enum>
void visit_enum(Archive& archive, Enum& value, std::size_t count) {
  auto number = static_cast<std::uint8_t>(value);
  archive.add(number);
  if constexpr (Archive::kReads) {
    if (number >= count) archive.refuse();
    value = static_cast<std::remove_const_t<Enum>>(number);
  }
}

template <class Archive, class Id>
void visit_id(Archive& archive, Id& id) {
  std::uint32_t index = id.index();
  archive.add(index);
  if constexpr (Archive::kReads) id = std::remove_const_t<Id>(index);
}

template <class Archive, class Text>
void visit_text(Archive& archive, Text& text) {  // also vectors of bytes
  if constexpr (Archive::kReads) {
    text.resize(archive.read_count());
  } else {
    archive.add_count(text.size());
  }
  archive.add_bytes(text.data(), text.size());
}

template <class Archive, class Vector, class Visit>
void visit_all(Archive& archive, Vector& vector, Visit visit_element) {
  if constexpr (Archive::kReads) {
    vector.resize(archive.read_count());
  } else {
    archive.add_count(vector.size());
  }
  for (auto& element : vector) {
    if (!archive.is_ok()) return;
    visit_element(element);
  }
}

#define X(name, text, doc) +1
constexpr std::size_t kSlotKinds = 0
#include "program/slot_kinds.def"
    ;
constexpr std::size_t kCodeKinds = 0
#include "program/code_kinds.def"
    ;
constexpr std::size_t kArgumentKinds = 0
#include "program/argument_kinds.def"
    ;
constexpr std::size_t kStepKinds = 0
#include "program/step_kinds.def"
    ;
#undef X
#define X(name, text, size_bytes, kind) +1
constexpr std::size_t kDTypes = 0
#include "types/dtypes.def"
    ;
#undef X

template <class Archive, class S>
void visit_size(Archive& archive, S& size) {
  visit(archive, size.value);
  visit(archive, size.expression);
}

template <class Archive, class S>
void visit_slot(Archive& archive, S& slot) {
  visit_enum(archive, slot.kind, kSlotKinds);
  visit(archive, slot.is_tensor);
  visit_enum(archive, slot.dtype, kDTypes);
  visit_enum(archive, slot.device.kind, 3);
  visit(archive, slot.device.index);
  visit_all(archive, slot.sizes, [&](auto& size) { visit_size(archive, size); });
  visit_all(archive, slot.strides, [&](auto& size) { visit_size(archive, size); });
  visit_size(archive, slot.storage_offset);
  visit(archive, slot.size_bytes);
  visit(archive, slot.arena_offset);
}

template <class Archive, class A>
void visit_argument(Archive& archive, A& argument) {
  visit_enum(archive, argument.kind, kArgumentKinds);
  visit(archive, argument.number);
  visit(archive, argument.real);
  visit_text(archive, argument.text);
  if (archive.enter()) {
    visit_all(archive, argument.elements, [&](auto& element) { visit_argument(archive, element); });
  }
  archive.leave();
}

template <class Archive, class S>
void visit_step(Archive& archive, S& step) {
  visit_enum(archive, step.kind, kStepKinds);
  visit_id(archive, step.slot);
  visit_id(archive, step.source);
  visit_id(archive, step.code);
  visit(archive, step.symbol);
  visit_all(archive, step.buffers, [&](auto& buffer) {
    visit_id(archive, buffer.slot);
    visit(archive, buffer.offset);
  });
  visit_all(archive, step.words, [&](auto& word) {
    visit(archive, word.bits);
    visit_id(archive, word.slot);
    visit(archive, word.expression);
  });
  visit_size(archive, step.units);
  visit(archive, step.unit_work);
  visit(archive, step.grain);
  visit(archive, step.first_check);
  visit(archive, step.check_count);
  visit_text(archive, step.op);
  visit_all(archive, step.arguments, [&](auto& argument) { visit_argument(archive, argument); });
  visit_all(archive, step.results, [&](auto& slot) { visit_id(archive, slot); });
  visit_all(archive, step.outs, [&](auto& slot) { visit_id(archive, slot); });
}

template <class Archive, class P>
void visit_program(Archive& archive, P& program) {
  visit(archive, program.inputs);
  visit(archive, program.arena_bytes);
  visit_all(archive, program.slots, [&](auto& slot) { visit_slot(archive, slot); });
  visit_all(archive, program.constants, [&](auto& constant) {
    visit_id(archive, constant.slot);
    visit_text(archive, constant.bytes);
  });
  visit_all(archive, program.codes, [&](auto& code) {
    visit(archive, code.key.low);
    visit(archive, code.key.high);
    visit_enum(archive, code.kind, kCodeKinds);
    visit_all(archive, code.symbols, [&](auto& symbol) { visit_text(archive, symbol); });
    visit_text(archive, code.bytes);
  });
  visit_all(archive, program.checks, [&](auto& check) {
    visit(archive, check.is_index_error);
    visit_text(archive, check.text);
  });
  visit_all(archive, program.steps, [&](auto& step) { visit_step(archive, step); });
}

base::Unsupported refuse(std::string text) { return {base::UnsupportedCode::DamagedProgram, std::move(text)}; }

}  // namespace

std::vector<std::uint8_t> serialise(const Program& program) {
  Writer body;
  visit_program(body, program);
  Writer whole;
  whole.add(kMagic);
  whole.add(kVersion);
  whole.add(static_cast<std::uint64_t>(body.bytes_.size()));
  whole.add(base::hash_bytes(body.bytes_.data(), body.bytes_.size()));
  whole.add_bytes(body.bytes_.data(), body.bytes_.size());
  return std::move(whole.bytes_);
}

base::Result<Program> deserialise(const std::uint8_t* bytes, std::size_t size_bytes) {
  if (size_bytes < kHeaderBytes) return refuse(std::to_string(size_bytes) + " bytes are no program");
  Reader header(bytes, kHeaderBytes);
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint64_t body_bytes = 0;
  std::uint64_t hash = 0;
  header.add(magic);
  header.add(version);
  header.add(body_bytes);
  header.add(hash);
  if (magic != kMagic) return refuse("not a program");
  if (version != kVersion) {
    return refuse("version " + std::to_string(version) + ", expected " + std::to_string(kVersion));
  }
  if (body_bytes != size_bytes - kHeaderBytes) {
    return refuse(std::to_string(size_bytes) + " bytes, expected " + std::to_string(body_bytes + kHeaderBytes));
  }
  if (hash != base::hash_bytes(bytes + kHeaderBytes, body_bytes)) return refuse("the hash does not fit its bytes");
  Reader body(bytes + kHeaderBytes, body_bytes);
  Program program;
  visit_program(body, program);
  if (!body.is_ok() || !body.is_at_end()) return refuse("fields do not fit");
  if (std::string error = verify(program); !error.empty()) return refuse(std::move(error));
  return program;
}

}  // namespace reprise::program
