// The dispatcher's tree. An inner node reads one path, takes one aspect of what it finds (its value, type, length,
// truth or tensor sizes) and goes on in the child for that digest, or in the one for all others. A program whose facts
// leave the aspect open is in every child. A leaf is a list. Nodes are chosen so that the largest child is small; a
// place with programs that no cheap fact tells apart has a leaf with all of them.
#include "guards/dispatcher.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/hash.h"
#include "guards/facts.h"
#include "guards/reads.h"

namespace reprise::guards {

using trace::FactKind;
using trace::NodeKind;

namespace {

constexpr int32_t kMaxPathLength = 10;
constexpr size_t kMaxFactsOfProgram = 4000;
constexpr int kMaxDepth = 6;
constexpr size_t kSmallLeaf = 1;

enum class Aspect : uint8_t { Value, Type, Length, Truth, Sizes };

uint64_t digest_pointer(const void* pointer) { return base::hash_combine(7, reinterpret_cast<uintptr_t>(pointer)); }

// Equal for all objects that an Equal or Identity fact takes for the same.
uint64_t digest_value(PyObject* object) {
  if (object == nullptr) return 1;
  if (PyLong_CheckExact(object)) {
    int overflow;
    return base::hash_combine(2, static_cast<uint64_t>(PyLong_AsLongLongAndOverflow(object, &overflow)));
  }
  if (PyFloat_CheckExact(object)) {
    const double number = PyFloat_AS_DOUBLE(object);
    return base::hash_bytes(&number, sizeof number, 3);
  }
  if (PyUnicode_CheckExact(object) || PyBytes_CheckExact(object)) {
    return base::hash_combine(4, static_cast<uint64_t>(PyObject_Hash(object)));
  }
  if (PyTuple_Check(object)) {
    uint64_t digest = 5;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); i++) {
      digest = base::hash_combine(digest, digest_value(PyTuple_GET_ITEM(object, i)));
    }
    return digest;
  }
  // Types that compare by value otherwise: all in one bucket.
  if (object != Py_None && !PyBool_Check(object) &&
      Py_TYPE(object)->tp_richcompare != PyBaseObject_Type.tp_richcompare && !PyType_Check(object) &&
      !PyModule_Check(object) && !PyFunction_Check(object) && !PyCFunction_Check(object)) {
    return 6;
  }
  return digest_pointer(object);
}

uint64_t digest_sizes(std::span<const int64_t> sizes) { return base::hash_bytes(sizes.data(), sizes.size_bytes(), 8); }

uint64_t digest(Aspect aspect, PyObject* object) {
  switch (aspect) {
    case Aspect::Value:
      return digest_value(object);
    case Aspect::Type:
      return object == nullptr ? 0 : digest_pointer(Py_TYPE(object));
    case Aspect::Length:
      return object == nullptr ? 0 : base::hash_combine(9, static_cast<uint64_t>(find_length(object)));
    case Aspect::Truth:
      return object == nullptr ? 0 : base::hash_combine(10, static_cast<uint64_t>(find_truth(object)));
    case Aspect::Sizes:
      return object != nullptr && host::is_tensor(object) ? digest_sizes(host::tensor_sizes(object)) : 0;
  }
  return 0;
}

bool is_path_kind(NodeKind kind) {
  switch (kind) {
    case NodeKind::InstanceDict:
    case NodeKind::DictItem:
    case NodeKind::SequenceItem:
    case NodeKind::CellContents:
    case NodeKind::Referent:
    case NodeKind::FunctionField:
    case NodeKind::MethodField:
      return true;
    default:
      return false;
  }
}

}  // namespace

struct Dispatcher::Path {
  NodeKind kind;
  int32_t n;
  PyObject* object;
  int32_t parent;
  int32_t length;
};

struct Dispatcher::Node {
  // Inner node
  int32_t path = -1;
  Aspect aspect = Aspect::Value;
  std::unordered_map<uint64_t, std::unique_ptr<Node>> children;
  std::unique_ptr<Node> others;
  // Leaf
  std::vector<int32_t> programs;

  bool is_leaf() const { return path < 0; }
};

// Finds out what the programs say about which paths, and builds the tree.
struct Dispatcher::Learner {
  using Key = std::pair<int32_t, Aspect>;  // path, aspect
  using Facts = std::map<Key, uint64_t>;   // of one program
  using PathKey = std::tuple<uint8_t, int32_t, PyObject*, int32_t>;

  explicit Learner(std::vector<Path>& path_list) : paths(path_list) {}

  std::vector<Path>& paths;
  std::map<PathKey, int32_t> path_ids;
  std::vector<Facts> facts;

  int32_t intern(NodeKind kind, int32_t n, PyObject* object, int32_t parent) {
    const int32_t length = parent < 0 ? 0 : paths[parent].length + 1;
    if (length > kMaxPathLength) return -1;
    auto [found, is_new] =
        path_ids.try_emplace({static_cast<uint8_t>(kind), n, object, parent}, static_cast<int32_t>(paths.size()));
    if (is_new) paths.push_back({kind, n, object, parent, length});
    return found->second;
  }

  void learn(const GuardProgram& program) {
    const GuardCode& code = program.code();
    std::vector<int32_t> path_of(static_cast<size_t>(code.slot_count()), -1);
    for (size_t slot = 0; slot < path_of.size(); slot++) {
      if (code.initial[slot] != nullptr) path_of[slot] = intern(NodeKind::Const, 0, code.initial[slot], -1);
    }
    Facts& known = facts.emplace_back();
    for (const GuardOp& op : code.ops) {
      if (known.size() >= kMaxFactsOfProgram) break;
      if (op.is_fact) {
        if (path_of[op.slot] >= 0) add_fact(program, op, path_of[op.slot], known);
      } else if (op.node() == NodeKind::Arg) {
        path_of[op.slot] = intern(NodeKind::Arg, op.n, nullptr, -1);
      } else if (is_path_kind(op.node()) && path_of[op.operand] >= 0) {
        path_of[op.slot] = intern(op.node(), op.n, op.object, path_of[op.operand]);
      }
    }
  }

  static void add_fact(const GuardProgram& program, const GuardOp& op, int32_t path, Facts& known) {
    auto add = [&](Aspect aspect, uint64_t value) { known.try_emplace({path, aspect}, value); };
    switch (op.fact()) {
      case FactKind::Equal:
      case FactKind::Identity:
        add(Aspect::Value, digest_value(op.object));
        return;
      case FactKind::Absent:
        add(Aspect::Value, digest_value(nullptr));
        return;
      case FactKind::Type:
        add(Aspect::Type, digest_pointer(op.object));
        return;
      case FactKind::Length:
        add(Aspect::Length, base::hash_combine(9, static_cast<uint64_t>(op.n)));
        return;
      case FactKind::Truth:
        add(Aspect::Truth, base::hash_combine(10, static_cast<uint64_t>(op.n != 0)));
        return;
      case FactKind::TensorMeta:
        add(Aspect::Sizes, digest_sizes(program.trace().tensor_metas[op.n]->sizes()));
        return;
      case FactKind::TensorLike:
      case FactKind::Present:
      case FactKind::Keys:
      case FactKind::Same:
      case FactKind::Different:
      case FactKind::Code:
        return;
    }
  }

  std::unique_ptr<Node> make_node(std::vector<int32_t> programs, int depth) {
    auto node = std::make_unique<Node>();
    Key key;
    if (programs.size() <= kSmallLeaf || depth >= kMaxDepth || !choose(programs, &key)) {
      node->programs = std::move(programs);
      return node;
    }
    node->path = key.first;
    node->aspect = key.second;
    std::map<uint64_t, std::vector<int32_t>> buckets;
    std::vector<int32_t> open;
    for (int32_t program : programs) {
      const auto found = facts[program].find(key);
      if (found == facts[program].end()) {
        open.push_back(program);
      } else {
        buckets[found->second].push_back(program);
      }
    }
    for (auto& [value, members] : buckets) {
      members.insert(members.end(), open.begin(), open.end());
      node->children.emplace(value, make_node(std::move(members), depth + 1));
    }
    node->others = make_node(std::move(open), depth + 1);
    return node;
  }

  // The pair whose largest child is smallest; then the shortest path. false: none makes anything smaller.
  bool choose(const std::vector<int32_t>& programs, Key* best) const {
    std::map<Key, std::unordered_map<uint64_t, int32_t>> counts;
    for (int32_t program : programs) {
      for (const auto& [key, value] : facts[program]) counts[key][value]++;
    }
    std::tuple<size_t, int32_t> best_score{programs.size(), 0};
    bool has_best = false;
    for (const auto& [key, values] : counts) {
      if (values.size() < 2 && values.begin()->second == static_cast<int32_t>(programs.size())) continue;
      size_t known = 0;
      int32_t largest = 0;
      for (const auto& [value, count] : values) {
        known += static_cast<size_t>(count);
        largest = std::max(largest, count);
      }
      const std::tuple<size_t, int32_t> score{programs.size() - known + static_cast<size_t>(largest),
                                              paths[key.first].length};
      if (std::get<0>(score) >= programs.size() || (has_best && score >= best_score)) continue;
      best_score = score;
      *best = key;
      has_best = true;
    }
    return has_best;
  }
};

Dispatcher::Dispatcher() = default;
Dispatcher::~Dispatcher() = default;

void Dispatcher::rebuild(std::span<GuardProgram* const> programs) {
  paths_.clear();
  last_ = nullptr;
  Learner learner(paths_);
  std::vector<int32_t> all;
  for (size_t i = 0; i < programs.size(); i++) {
    learner.learn(*programs[i]);
    all.push_back(static_cast<int32_t>(i));
  }
  std::reverse(all.begin(), all.end());  // the newest is the best guess
  root_ = learner.make_node(std::move(all), 0);
}

PyObject* Dispatcher::read_path(int32_t path, PyObject* const* args) const {
  const Path& step = paths_[path];
  if (step.kind == NodeKind::Const) return step.object;
  if (step.kind == NodeKind::Arg) return args[step.n];
  PyObject* owner = read_path(step.parent, args);
  return owner == nullptr ? nullptr : read_value(step.kind, step.n, step.object, owner).object;  // these read borrowed
}

std::span<const int32_t> Dispatcher::find_candidates(PyObject* const* args) {
  Node* node = root_.get();
  if (node == nullptr) return {};
  while (!node->is_leaf()) {
    const auto child = node->children.find(digest(node->aspect, read_path(node->path, args)));
    node = child == node->children.end() ? node->others.get() : child->second.get();
  }
  last_ = node;
  return node->programs;
}

void Dispatcher::note_hit(int32_t index) {
  if (last_ == nullptr) return;
  std::vector<int32_t>& order = last_->programs;
  const auto found = std::find(order.begin(), order.end(), index);
  if (found != order.end() && found != order.begin()) std::rotate(order.begin(), found, found + 1);
}

}  // namespace reprise::guards
