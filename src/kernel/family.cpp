#include "kernel/family.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "kernel/analysis.h"
#include "kernel/numbers.h"
#include "kernel/rewrite_impl.h"
#include "kernel/verify.h"
#include "kernel/walk_impl.h"

namespace reprise::kernel {
namespace {

constexpr std::size_t kMaxInstances = 8;  // of one family: after so many choices of sizes it is not widened again
constexpr std::size_t kMaxFamilies = 64;  // of one structure
constexpr std::int32_t kFixed = -1;
constexpr std::int32_t kIgnored = -2;     // differs, and no code depends on it
constexpr std::int32_t kBounded = -3;     // the length of a local array: at most what the kernel has
constexpr std::int64_t kSpareFactor = 4;  // local arrays are so much longer than the longest that was seen

// A kernel as its structure (words that are equal in all of a family) and its numbers, in program order.
struct Reading {
  std::vector<std::uint64_t> words;
  std::vector<Number> numbers;

  explicit Reading(const Kernel& kernel) { Walk(kernel, *this).run(); }
  void word(std::uint64_t value) { words.push_back(value); }
  void number(const Number& number) {
    if (number.place == Place::Scalar && number.dtype == DType::Bool)
      return word(static_cast<std::uint64_t>(number.value));
    numbers.push_back(number);
  }
  base::Hash128 get_structure() const {
    base::WideHasher hasher;
    for (const std::uint64_t word : words) hasher.add(word);
    return hasher.finish();
  }
};

// Variables of loops over strips of a longer loop, and of parallel loops: their counts may be the same for two lengths.
std::vector<ValueId> list_strips(const Kernel& kernel) {
  std::vector<ValueId> strips;
  for (const LoopId body : kernel.bodies) strips.push_back(kernel.get(body).var);
  for (const Loop& loop : kernel.loops) {
    for (const Term& term : kernel.get(loop.lower).terms()) strips.push_back(term.value);
  }
  return strips;
}

// Strips of a loop that end where the loop ends have no limit; at most sizes the last one has. The same for all: a
// limit.
Kernel add_limits(const Kernel& given) {
  Kernel kernel = given;
  for (Loop& loop : kernel.loops) {
    if (loop.limit.is_valid() || loop.kind != LoopKind::Vector) continue;
    const Affine& lower = kernel.get(loop.lower);
    if (lower.constant() != 0 || lower.terms().size() != 1) continue;
    const auto [length, value] = lower.terms()[0];
    if (kernel.get(loop.upper) - lower != Affine(length) || kernel.get(value).op != ScalarOp::LoopVar) continue;
    const Loop& strips = kernel.get_loop(kernel.get(value));
    const Affine& count = kernel.get(strips.upper);
    if (strips.step != 1 || strips.limit.is_valid() || !count.is_constant()) continue;
    kernel.indexes.push_back(count * length);
    loop.limit = IndexId(static_cast<std::uint32_t>(kernel.indexes.size() - 1));
  }
  return kernel;
}

// Puts parameters where the numbers of groups stand.
class Generaliser {
 public:
  Generaliser(const Kernel& kernel, const std::vector<Number>& numbers, const std::vector<std::int32_t>& groups)
      : from_(kernel), kernel_(kernel), rewriter_(kernel_), analysis_(kernel), numbers_(numbers), groups_(groups) {}

  // Half of the memory for local arrays is left to prepare().
  static bool fits_locals(const Kernel& kernel) {
    std::int64_t bytes = 0;
    for (const Buffer& buffer : kernel.buffers) {
      if (buffer.kind == BufferKind::Local) {
        bytes += buffer.count * static_cast<std::int64_t>(types::get_size_bytes(buffer.dtype));
      }
    }
    return bytes <= kMaxLocalBytes / 2;
  }

  // Nothing: a number varies that no parameter can stand for.
  std::optional<Kernel> run(const std::vector<DType>& dtypes, const std::vector<std::int64_t>& capacities) {
    for (const DType dtype : dtypes) {
      const auto number = static_cast<std::uint64_t>(kernel_.params.size());
      kernel_.params.push_back(types::is_float(dtype) ? DType::Float64 : DType::Int64);
      params_.push_back(rewriter_.add_node(ScalarOp::Param, kernel_.params.back(), {}, number));
      kernel_.param_values.push_back(params_.back());
    }
    find_homes();
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      const Number& number = numbers_[i];
      if (groups_[i] == kIgnored) kernel_.buffers[number.id].count = -1;
      if (groups_[i] == kBounded) kernel_.buffers[number.id].count = capacities[i];
      if (groups_[i] >= 0 && !replace(number, static_cast<std::size_t>(groups_[i]))) return std::nullopt;
    }
    if (!fits_locals(kernel_)) return std::nullopt;
    insert();
    if (!verify(kernel_).empty()) return std::nullopt;
    return std::move(kernel_);
  }

 private:
  // Where a value is made: a region (or the prologue), and the loop whose variable it is.
  struct Home {
    RegionId region;  // invalid: the prologue
    LoopId loop;      // valid: a loop variable
  };

  void find_homes() {
    homes_.resize(from_.nodes.size());
    for (std::uint32_t r = 0; r < from_.regions.size(); ++r) {
      for (const NodeId id : from_.regions[r]) homes_[id.index()].region = RegionId(r);
    }
    for (std::uint32_t l = 0; l < from_.loops.size(); ++l) homes_[from_.loops[l].var.index()].loop = LoopId(l);
  }

  bool replace(const Number& number, std::size_t group) {
    const ValueId param = params_[group];
    if (number.place == Place::Scalar) return replace_scalar(NodeId(number.id), param);
    // An index may be read several times, and is rewritten once for each of its numbers.
    const std::uint64_t key =
        std::uint64_t{number.id} << 32 | (number.place == Place::Constant ? 0xffffffffu : number.term);
    if (!done_.emplace(key, true).second) return true;
    const IndexId index(number.id);
    Affine& affine = kernel_.indexes[number.id];
    if (number.place == Place::Constant) {
      affine += Affine(param) - Affine(number.value);
      return true;
    }
    const Term term = from_.get(index).terms()[number.term];
    const ValueId product = multiply(term.value, param, group);
    if (!product.is_valid()) return false;
    affine += Affine(product) - Affine(term.value) * term.coefficient;
    return true;
  }

  // value * param, made where the value is made.
  ValueId multiply(ValueId value, ValueId param, std::size_t group) {
    ValueId& product = products_[{value.index(), group}];
    if (product.is_valid()) return product;
    const Home home = homes_[value.index()];
    RegionId region = home.region;
    bool is_first = false;
    if (home.loop.is_valid()) {
      const Loop& loop = from_.get(home.loop);
      if (loop.kind == LoopKind::Vector || loop.kind == LoopKind::TileRows) return {};
      region = loop.body;
      is_first = true;
    } else if (analysis_.is_varying(value)) {
      return {};
    }
    product = rewriter_.add_node(ScalarOp::Mul, DType::Int64, {value, param});
    insertions_.push_back({region, is_first ? NodeId() : value, product});
    return product;
  }

  bool replace_scalar(NodeId id, ValueId param) {
    Node& node = kernel_.get(id);
    if (node.dtype != kernel_.get(param).dtype) {
      node = kernel_.get(rewriter_.add_node(ScalarOp::Cast, node.dtype, {param}));
      return true;
    }
    replaced_[id.index()] = param;
    return true;
  }

  void insert() {
    for (const Insertion& insertion : insertions_) {
      std::vector<NodeId>& nodes = insertion.region.is_valid() ? kernel_.get(insertion.region) : kernel_.prologue;
      auto at = nodes.begin();
      if (insertion.behind.is_valid()) {
        at = std::find(nodes.begin(), nodes.end(), insertion.behind);
        if (at == nodes.end())
          at = nodes.begin();  // a parameter
        else
          ++at;
      }
      nodes.insert(at, insertion.node);
    }
    if (replaced_.empty()) return;
    const auto get_value = [&](ValueId value) {
      const auto found = replaced_.find(value.index());
      return found == replaced_.end() ? value : found->second;
    };
    for (Node& node : kernel_.nodes) {
      for (int i = 0; i < node.operand_count; ++i) node.operands[i] = get_value(node.operands[i]);
    }
    for (Affine& affine : kernel_.indexes) {
      Affine sum(affine.constant());
      for (const Term& term : affine.terms()) sum += Affine(get_value(term.value)) * term.coefficient;
      affine = std::move(sum);
    }
    std::erase_if(kernel_.prologue, [&](NodeId id) { return replaced_.contains(id.index()); });
  }

  struct Insertion {
    RegionId region;
    NodeId behind;  // invalid: in front of all
    NodeId node;
  };

  const Kernel& from_;
  Kernel kernel_;
  Rewriter rewriter_;
  Analysis analysis_;
  const std::vector<Number>& numbers_;
  const std::vector<std::int32_t>& groups_;
  std::vector<ValueId> params_;
  std::vector<Home> homes_;
  std::vector<Insertion> insertions_;
  std::map<std::pair<std::uint32_t, std::size_t>, ValueId> products_;
  std::unordered_map<std::uint64_t, bool> done_;
  std::unordered_map<std::uint32_t, ValueId> replaced_;
};

// The kernels of one structure that are one kernel with parameters.
struct Family {
  std::vector<std::uint64_t> words;
  Kernel first;
  std::vector<ValueId> strips;                       // of the first
  std::vector<Number> numbers;                       // of the first
  std::vector<std::vector<std::int64_t>> instances;  // numbers of each
  std::vector<std::uint64_t> sizes;                  // that it has served
  std::vector<std::int32_t> groups;                  // by number: of its parameter, or kFixed, kIgnored
  std::vector<std::int64_t> capacities;              // by number: of the bounded ones
  std::vector<std::size_t> group_numbers;            // by group: the first number of it
  std::optional<Kernel> general;                     // where there are groups
  bool is_final = false;                             // never widened again

  // The words of a kernel that the family has; nothing: it has not.
  std::optional<std::vector<std::int64_t>> find_words(const std::vector<Number>& now) const {
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (groups[i] == kIgnored) continue;
      if (groups[i] == kBounded) {
        if (now[i].value > capacities[i]) return std::nullopt;
        continue;
      }
      const std::int64_t expected =
          groups[i] == kFixed ? numbers[i].value : now[group_numbers[static_cast<std::size_t>(groups[i])]].value;
      if (now[i].value != expected) return std::nullopt;
    }
    std::vector<std::int64_t> found;
    for (const std::size_t number : group_numbers) {
      const Number& of_group = now[number];
      const auto bits = static_cast<std::uint64_t>(of_group.value);
      found.push_back(types::is_float(of_group.dtype)
                          ? static_cast<std::int64_t>(to_bits(to_double(of_group.dtype, bits)))
                          : of_group.value);
    }
    return found;
  }

  std::size_t count_differences(const std::vector<Number>& now) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < now.size(); ++i) count += now[i].value != numbers[i].value ? 1 : 0;
    return count;
  }

  // False, and nothing has changed: it cannot be made.
  bool widen(const std::vector<Number>& now) {
    std::vector<std::vector<std::int64_t>> all = instances;
    std::vector<std::int64_t>& added = all.emplace_back();
    for (const Number& number : now) added.push_back(number.value);
    std::vector<std::int32_t> wider(now.size(), kFixed);
    std::vector<std::int64_t> longest(now.size(), 0);
    std::vector<std::size_t> firsts;
    std::vector<DType> dtypes;
    // One that has not changed yet is alone: it may be another number's equal by chance.
    std::map<std::tuple<DType, std::vector<std::int64_t>, std::size_t>, std::int32_t> by_values;
    for (std::size_t i = 0; i < now.size(); ++i) {
      std::vector<std::int64_t> values;
      for (const std::vector<std::int64_t>& instance : all) values.push_back(instance[i]);
      const bool is_same =
          std::all_of(values.begin(), values.end(), [&](std::int64_t value) { return value == values[0]; });
      const bool counts_strips =
          numbers[i].bounds.is_valid() && std::find(strips.begin(), strips.end(), numbers[i].bounds) != strips.end();
      if (is_same && !counts_strips) continue;
      if (now[i].place == Place::Count) {
        wider[i] = kIgnored;
        continue;
      }
      if (now[i].place == Place::LocalCount) {
        wider[i] = kBounded;
        longest[i] = *std::max_element(values.begin(), values.end());
        continue;
      }
      const auto [found, is_new] = by_values.try_emplace({now[i].dtype, std::move(values), is_same ? i + 1 : 0},
                                                         static_cast<std::int32_t>(firsts.size()));
      if (is_new) {
        firsts.push_back(i);
        dtypes.push_back(now[i].dtype);
      }
      wider[i] = found->second;
    }
    std::vector<std::int64_t> most = longest;
    for (std::int64_t& count : most) count *= kSpareFactor;
    std::optional<Kernel> made = Generaliser(first, numbers, wider).run(dtypes, most);
    if (!made) made = Generaliser(first, numbers, wider).run(dtypes, most = longest);
    if (!made) return false;
    instances = std::move(all);
    groups = std::move(wider);
    capacities = std::move(most);
    group_numbers = std::move(firsts);
    general = std::move(made);
    is_final = instances.size() >= kMaxInstances;
    return true;
  }
};

}  // namespace

class KernelFamily::Impl {
 public:
  Member adapt(const Kernel& kernel, std::uint64_t sizes, bool may_join) {
    const Kernel normal = add_limits(kernel);
    const Reading reading(normal);
    const base::Hash128 structure = reading.get_structure();
    const std::vector<Number>& numbers = reading.numbers;
    const std::lock_guard lock(mutex_);
    std::vector<Family>& families = families_[structure];
    Family* closest = nullptr;
    std::size_t least = 0;
    for (Family& family : families) {
      if (family.words != reading.words) continue;  // the same hash
      if (auto words = family.find_words(numbers)) {
        if (!may_join) return {kernel, {}};
        return give(family, kernel, sizes, std::move(*words));
      }
      if (family.is_final || !may_join) continue;
      if (std::find(family.sizes.begin(), family.sizes.end(), sizes) != family.sizes.end()) continue;
      const std::size_t differences = family.count_differences(numbers);
      if (closest != nullptr && differences >= least) continue;
      closest = &family;
      least = differences;
    }
    if (closest != nullptr) {
      if (closest->widen(numbers)) return give(*closest, kernel, sizes, *closest->find_words(numbers));
    }
    if (families.size() < kMaxFamilies) {
      Family& made = families.emplace_back();
      made.words = reading.words;
      made.first = normal;
      made.strips = list_strips(normal);
      made.numbers = numbers;
      for (const Number& number : numbers) made.instances.resize(1), made.instances[0].push_back(number.value);
      made.groups.assign(numbers.size(), kFixed);
      made.sizes.push_back(sizes);
    }
    return {kernel, {}};
  }

 private:
  static Member give(Family& family, const Kernel& kernel, std::uint64_t sizes, std::vector<std::int64_t> words) {
    if (std::find(family.sizes.begin(), family.sizes.end(), sizes) == family.sizes.end()) {
      family.sizes.push_back(sizes);
    }
    return {family.general ? *family.general : kernel, std::move(words)};
  }

  std::mutex mutex_;
  std::map<base::Hash128, std::vector<Family>> families_;  // by structure
};

KernelFamily::KernelFamily() : impl_(std::make_unique<Impl>()) {}
KernelFamily::~KernelFamily() = default;

KernelFamily::Member KernelFamily::adapt(const Kernel& kernel, std::uint64_t sizes, bool may_join) {
  return impl_->adapt(kernel, sizes, may_join);
}

}  // namespace reprise::kernel
