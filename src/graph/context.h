// Context: what the graphs of one compilation share: memory, symbols, names of extern ops, storage ids.
//
// A region's joint graph, its forward and its backward are graphs of one Context, so spans and metadata of one may
// stand in another. Created by std::make_shared; every Graph keeps it alive. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/arena.h"
#include "base/export.h"
#include "graph/arg.h"
#include "graph/op.h"
#include "graph/value.h"
#include "sym/context.h"

namespace reprise::graph {

class REPRISE_EXPORT Context {
 public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  base::Arena& arena() { return arena_; }
  sym::Context& symbols() { return symbols_; }

  // The known op of that name, or an extern one; `is_random` says of an extern one whether it draws from a generator.
  OpId intern_op(std::string_view name, bool is_random = false);
  std::string_view get_op_name(OpId op) const;

  StorageId make_storage() { return StorageId(storage_count_++); }
  std::uint32_t get_storage_count() const { return storage_count_; }
  // For a reader of texts that name storages.
  void reserve_storages(std::uint32_t count) { storage_count_ = count > storage_count_ ? count : storage_count_; }

  // Copies into the arena.
  Arg make_list(std::span<const Arg> elements) { return Arg::make_list(arena_.copy(elements)); }
  Arg make_int_list(std::span<const sym::Int> elements);
  Arg make_string(std::string_view text) { return Arg::make_string(arena_.copy(text)); }
  Arg make_complex(ComplexNumber number) { return Arg::make_complex(arena_.make<ComplexNumber>(number)); }
  // `sizes` and `strides` have the same length. A meta without a storage gets a new one.
  TensorMeta make_meta(std::span<const sym::Int> sizes, std::span<const sym::Int> strides, types::DType dtype,
                       types::Device device = {}, sym::Int offset = 0, StorageId storage = {});
  // Contiguous.
  TensorMeta make_meta(std::span<const sym::Int> sizes, types::DType dtype, types::Device device = {});

 private:
  base::Arena arena_;
  sym::Context symbols_;
  std::vector<std::string_view> extern_names_;  // in arena_
  std::unordered_map<std::string_view, OpId> extern_ids_;
  std::uint32_t storage_count_ = 0;
};

}  // namespace reprise::graph
