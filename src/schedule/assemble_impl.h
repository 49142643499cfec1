// The assembler's class, shared by assemble.cpp (slots and steps) and assemble_memory.cpp (what lies where). The rules
// of the memory plan stand at the top of assemble_memory.cpp. One assembler, one plan, one thread.
#pragma once

#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "schedule/assemble.h"

namespace reprise::schedule {

using graph::Arg;
using graph::ArgKind;
using graph::EffectKind;
using graph::Graph;
using graph::Node;
using graph::OutputKind;
using graph::ValueId;
using graph::ValueKind;
using program::Argument;
using program::ArgumentKind;
using program::Program;
using program::SlotId;
using program::SlotKind;
using program::Step;
using program::StepKind;

inline constexpr std::int32_t kNever = -1;  // no item

// The out= overload of an op, or "".
std::string_view find_out_variant(graph::OpId op);

class Assembler {
 public:
  Assembler(const Graph& graph, const Lowered& lowered, const Grouping& grouping, std::vector<Emitted> emitted,
            const Options& options)
      : graph_(graph), lowered_(lowered), grouping_(grouping), emitted_(std::move(emitted)), options_(options) {}

  Plan run();

 private:
  struct Storage {
    std::int32_t first = kNever;  // the item that computes it; kNever: a source
    std::int32_t last = kNever;   // the last item that uses it
    bool is_source = false;
    bool is_shared_source = false;  // more than one input lies on it
    bool escapes = false;           // the host gets it
    bool is_library = false;        // the memory comes with the result of a library call
    bool is_kernel = false;         // computed by a kernel, or by a library call into memory of ours
    std::int64_t size_bytes = 0;
    std::uint32_t place = 0;  // the storage whose memory this one is in: itself, or one that it took over
    std::int64_t arena_offset = -1;
  };

  // --- lives of storages (assemble_memory.cpp)
  std::uint32_t get_storage(TensorId tensor) const;
  Storage& get_place(TensorId tensor);
  std::uint32_t find_place(std::uint32_t storage);
  void unite(std::uint32_t earlier, std::uint32_t later);
  void touch(TensorId tensor, std::int32_t item);
  std::int64_t get_extent(TensorId id) const;
  void set_size(TensorId tensor);
  bool has_planned_result(const Node& node) const;
  void find_lives();

  // --- memory taken over (assemble_memory.cpp)
  bool has_same_geometry(TensorId a, TensorId b) const;
  TensorId find_written_argument(const Node& node, ValueId value) const;
  void write_inputs();
  bool write_input(TensorId input, TensorId value);
  bool has_earlier_check(std::int32_t item, graph::NodeId node) const;
  void find_first_checks();
  bool can_write_in_place(std::uint32_t group_index, TensorId result, TensorId operand) const;
  void share_places();
  bool can_lie_in_arena(TensorId tensor);
  bool is_own_output(TensorId tensor) const;
  void take_over_arguments();
  void place_in_arena();

  // --- slots (assemble.cpp)
  program::Size make_size(sym::Int number) const;
  SlotId add_slot(TensorId tensor, SlotKind kind);
  void set_slot(TensorId tensor, SlotId slot);
  void add_sources();
  Step& add_step(StepKind kind);
  SlotId make_memory(TensorId tensor);
  bool has_same_shape(TensorId a, TensorId b) const;
  SlotId make_resized(TensorId from, TensorId to);
  SlotId get_slot(TensorId tensor);
  bool is_plain_view(TensorId tensor, TensorId) const;

  // --- steps (assemble.cpp)
  Argument make_argument(const Arg& arg);
  void call_library(const Node& node);
  void add_item(std::int32_t number);
  void launch(std::uint32_t group);
  SlotId add_flags();
  void finish_flags();
  program::CodeId add_code(kernel::Kernel kernel);
  void free_behind(std::int32_t number);
  void add_return();
  SlotId return_slot(ValueId id);
  void find_overwritten();

  const Graph& graph_;
  const Lowered& lowered_;
  const Grouping& grouping_;
  std::vector<Emitted> emitted_;
  const Options& options_;
  Plan plan_;
  std::vector<Storage> storages_;
  std::vector<std::int32_t> root_counts_;  // by storage: how many outputs, effects, gradients, saved lie on it
  std::vector<SlotId> slots_;              // by tensor
  std::vector<std::vector<SlotId>> place_slots_;
  std::vector<std::vector<std::uint32_t>> ends_;
  std::vector<std::uint32_t> first_checks_;  // by item: the first node with a check in it or behind it
  SlotId flags_;
  std::vector<bool> is_overwritten_;                        // by storage: inputs that effects write
  std::unordered_map<base::Hash128, std::uint32_t> codes_;  // by key; never iterated
};

}  // namespace reprise::schedule
