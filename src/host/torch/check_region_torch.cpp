#include "host/torch/check_region.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "host/torch/python_errors_impl.h"
#include "host/torch/scalar_values_impl.h"
#include "host/torch/trace_tensor_impl.h"

namespace reprise::host {

namespace {

using Tensors = std::vector<at::Tensor>;

class Owned {
 public:
  ~Owned() {
    for (PyObject* object : objects) Py_XDECREF(object);
  }
  std::vector<PyObject*> objects;
};

// What one way to run the region gave.
struct Results {
  Tensors outputs, written, gradients;
  std::vector<uint8_t> requires_grad;
};

// How far apart sums in another order may be: relative norms of a whole tensor, and of one element.
struct Tolerance {
  double norm, element;
};
// Inputs are moved by so many epsilons to see how far results move, and so many times that is let pass.
constexpr double kNoiseEpsilons = 4;
constexpr double kNoiseFactor = 8;
// Of inputs that are written to, each of which is copied twice: an optimizer's step on a very large model.
constexpr int64_t kMaxCopiedBytes = int64_t{2} << 30;

// A result is as exact as the steps that it is made of: a float32 gradient behind bfloat16 ones (autocast) is not.
Tolerance tolerance_of(c10::ScalarType dtype, types::DType coarsest) {
  if (coarsest == types::DType::BFloat16) dtype = c10::kBFloat16;
  if (coarsest == types::DType::Float16) dtype = c10::kHalf;
  switch (dtype) {
    case c10::kDouble:
    case c10::kComplexDouble:
      return {1e-9, 1e-6};
    case c10::kHalf:
      return {1e-2, 1e-1};
    case c10::kBFloat16:
      return {5e-2, 3e-1};
    default:
      return {1e-4, 1e-2};
  }
}

// What one pass over two tensors finds; sums in double.
struct Distance {
  double error = 0, norm = 0;    // squares summed: got - want, want
  double worst = 0;              // max of |got - want| - element * |want|
  bool is_special_equal = true;  // NaNs and infinities in the same places
};

template <typename T>
void measure(const T* got, const T* want, int64_t count, double element, Distance& found) {
  double error = 0, norm = 0, worst = 0;
  bool is_special_equal = true;
  for (int64_t i = 0; i < count; i++) {
    const double a = static_cast<double>(got[i]), b = static_cast<double>(want[i]);
    if (!std::isfinite(b) || !std::isfinite(a)) {
      is_special_equal = is_special_equal && (std::isnan(b) ? std::isnan(a) : a == b);
      continue;
    }
    const double distance = std::abs(a - b);
    error += distance * distance;
    norm += b * b;
    worst = std::max(worst, distance - element * std::abs(b));
  }
  found.error += error;
  found.norm += norm;
  found.worst = std::max(found.worst, worst);
  found.is_special_equal = found.is_special_equal && is_special_equal;
}

// Float tensors of one dtype and shape.
Distance measure(const at::Tensor& got, const at::Tensor& want, double element) {
  const bool is_alike = got.strides() == want.strides() && want.is_non_overlapping_and_dense();
  const at::Tensor a = is_alike ? got : got.contiguous(), b = is_alike ? want : want.contiguous();
  Distance found;
  const int64_t count = b.numel();
  AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, b.scalar_type(), "check_region", [&] {
    measure(a.const_data_ptr<scalar_t>(), b.const_data_ptr<scalar_t>(), count, element, found);
  });
  return found;
}

bool has_plain_floats(const at::Tensor& tensor) {
  const c10::ScalarType dtype = tensor.scalar_type();
  return dtype == c10::kFloat || dtype == c10::kDouble || dtype == c10::kHalf || dtype == c10::kBFloat16;
}

// `noise`, if defined: what `want` would be with inputs a few roundings away. As far as that moves, sums in another
// order may move the result.
std::string describe_difference(const at::Tensor& got, const at::Tensor& want, const at::Tensor& noise,
                                types::DType coarsest) {
  if (!got.defined() || !want.defined()) return got.defined() == want.defined() ? "" : "there is one only on one side";
  if (got.scalar_type() != want.scalar_type()) return "another dtype";
  if (got.sizes() != want.sizes()) return "another shape";
  if (want.numel() == 0) return {};
  if (want.is_complex()) {
    return describe_difference(at::view_as_real(got.resolve_conj()), at::view_as_real(want.resolve_conj()),
                               noise.defined() ? at::view_as_real(noise.resolve_conj()) : noise, coarsest);
  }
  if (!has_plain_floats(want)) return at::equal(got, want) ? "" : "other values";
  const Tolerance tolerance = tolerance_of(want.scalar_type(), coarsest);
  const Distance found = measure(got, want, tolerance.element);
  if (!found.is_special_equal) return "infinities or NaNs in other places";
  const double root = std::sqrt(static_cast<double>(want.numel()));
  const double error = std::sqrt(found.error), norm = std::sqrt(found.norm);
  double moved = 0, moved_most = 0;
  if (noise.defined() && noise.sizes() == want.sizes()) {
    const Distance of_noise = measure(noise, want, 0);
    moved = kNoiseFactor * std::sqrt(of_noise.error);
    moved_most = kNoiseFactor * of_noise.worst;
  }
  // Noise around zero is no difference.
  const double floor = 1e-2 * tolerance.norm;
  if (error <= tolerance.norm * norm + floor * root + moved &&
      found.worst <= tolerance.element * norm / root + floor + moved_most)
    return {};
  return "off by " + std::to_string(error / (norm + 1e-300)) + " (relative norm)";
}

class Checker {
 public:
  Checker(const std::shared_ptr<RegionCode>& code, std::span<PyObject* const> inputs)
      : code_(code), plan_(code->plan()), originals_(inputs), is_written_(inputs.size(), 0) {
    for (const RegionEffect& effect : plan_.effects) is_written_[effect.input] = 1;
    for (size_t i = 0; i < plan_.version_bumps.size(); i++) is_written_[i] |= plan_.version_bumps[i] != 0;
  }

  RegionCheck run() {
    RegionCheck check;
    if (std::string obstacle = find_obstacle(); !obstacle.empty()) {
      return {RegionCheck::Outcome::NotChecked, std::move(obstacle)};
    }
    Results want, got;
    const at::Tensor random = plan_.is_random ? get_rng_state() : at::Tensor();
    const bool ok = run_guarded([&] {
      want = run_once(false);
      if (random.defined()) set_rng_state(random);
      got = run_once(true);
      check.text = compare(got, want, Results());
      if (check.text.empty()) return;
      has_noise_ = true;
      if (random.defined()) set_rng_state(random);
      check.text = compare(got, want, run_once(false));
    });
    if (random.defined()) set_rng_state(random);
    if (!ok) {
      PyErr_Clear();
      return {RegionCheck::Outcome::Raised, {}};
    }
    if (!check.text.empty()) check.outcome = RegionCheck::Outcome::Differs;
    return check;
  }

 private:
  static bool is_number(PyObject* object) { return PyFloat_CheckExact(object) || PyLong_CheckExact(object); }

  std::string find_obstacle() const {
    if (!plan_.gradients.empty()) return "the region leaves gradients in its inputs";
    int64_t copied_bytes = 0;
    for (size_t i = 0; i < originals_.size(); i++) {
      if (is_written_[i] == 0 || is_number(originals_[i])) continue;
      const at::Tensor& written = THPVariable_Unpack(originals_[i]);
      copied_bytes += static_cast<int64_t>(written.nbytes());
      if (copied_bytes > kMaxCopiedBytes) return "too large to be copied";
      for (size_t k = 0; k < originals_.size(); k++) {
        if (k == i || is_number(originals_[k])) continue;
        if (THPVariable_Unpack(originals_[k]).storage().is_alias_of(written.storage()))
          return "inputs that are written to share memory";
      }
    }
    for (const RegionEffect& effect : plan_.effects) {
      if (effect.kind == RegionEffect::Kind::SetData || effect.kind == RegionEffect::Kind::Resize)
        return "an input gets other memory";
    }
    return {};
  }

  static double epsilon_of(c10::ScalarType dtype) {
    switch (dtype) {
      case c10::kDouble:
        return std::numeric_limits<double>::epsilon();
      case c10::kHalf:
        return 0x1p-10;
      case c10::kBFloat16:
        return 0x1p-7;
      default:
        return std::numeric_limits<float>::epsilon();
    }
  }

  static at::Tensor copy_of(const at::Tensor& tensor) {
    at::Tensor copy = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
    return copy.copy_(tensor);
  }

  // Leaves of their own, or (written ones) results of a copy.
  void make_inputs(Tensors& leaves, Tensors& inputs) const {
    for (size_t i = 0; i < originals_.size(); i++) {
      if (is_number(originals_[i])) {
        leaves.emplace_back();
        inputs.emplace_back();
        continue;
      }
      const at::Tensor& original = THPVariable_Unpack(originals_[i]);
      at::Tensor leaf = original.detach();
      if (is_written_[i] != 0) {
        const at::NoGradGuard no_grad;
        leaf = copy_of(leaf);
      }
      if (has_noise_ && leaf.is_floating_point()) {
        const at::NoGradGuard no_grad;
        const at::Tensor factors = make_pattern(leaf).mul_(kNoiseEpsilons * epsilon_of(leaf.scalar_type())).add_(1);
        leaf = leaf.mul(factors.to(leaf.scalar_type()));  // dense strides are kept
      }
      leaf.set_requires_grad(original.requires_grad());
      const at::AutoGradMode with_grad(true);
      at::Tensor input = is_written_[i] != 0 && original.requires_grad() ? leaf.clone() : leaf;
      leaves.push_back(std::move(leaf));
      inputs.push_back(std::move(input));
    }
  }

  Results run_once(bool is_native) {
    Results results;
    Tensors leaves, inputs;
    make_inputs(leaves, inputs);
    Owned arguments, objects;
    for (size_t i = 0; i < inputs.size(); i++) {
      arguments.objects.push_back(inputs[i].defined() ? THPVariable_Wrap(inputs[i]) : Py_NewRef(originals_[i]));
    }
    bool ok;
    {
      const EntryStateScope scope(plan_.entry_state);
      ok = is_native ? call_region(code_, arguments.objects, objects.objects)
                     : code_->call_again(arguments.objects, objects.objects);
    }
    if (!ok) throw_python_error();
    for (PyObject* object : objects.objects) {
      const at::Tensor& output = THPVariable_Unpack(object);
      results.outputs.push_back(output.detach());
      results.requires_grad.push_back(output.requires_grad());
    }
    for (size_t i = 0; i < inputs.size(); i++) {
      if (is_written_[i] != 0 && inputs[i].defined()) results.written.push_back(inputs[i].detach());
    }
    differentiate(leaves, objects.objects, results);
    return results;
  }

  // Numbers in [-1, 1], in the sizes and strides of the tensor if it is dense.
  static at::Tensor make_pattern(const at::Tensor& like) {
    const c10::ScalarType dtype = like.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat;
    return at::arange(like.numel(), at::TensorOptions(dtype)).mul_(0.37).add_(0.5).cos_().reshape(like.sizes());
  }

  static at::Tensor make_tangent(const at::Tensor& output) {
    const at::Tensor pattern = make_pattern(output);
    if (!output.is_non_overlapping_and_dense()) return pattern.to(output.scalar_type());
    return at::empty_strided(output.sizes(), output.strides(), output.options()).copy_(pattern);
  }

  bool is_expected(size_t output) const {
    for (size_t i = 0; i < plan_.differentiable.size(); i++) {
      if (!plan_.differentiable[i].is_input && plan_.differentiable[i].index == output)
        return plan_.is_expected[i] != 0;
    }
    return true;
  }

  void differentiate(const Tensors& leaves, const std::vector<PyObject*>& objects, Results& results) const {
    torch::autograd::edge_list roots, ends;
    torch::autograd::variable_list tangents;
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < objects.size(); i++) {
        const at::Tensor& output = THPVariable_Unpack(objects[i]);
        if (!output.requires_grad() || is_leaf_now(output) || !is_expected(i)) continue;
        roots.push_back(torch::autograd::impl::gradient_edge(output));
        tangents.push_back(make_tangent(output));
      }
    }
    for (size_t i = 0; i < leaves.size(); i++) {
      // One that is written to may require gradients only since then: it is a result, not an end.
      const bool is_end = leaves[i].defined() && THPVariable_Unpack(originals_[i]).requires_grad();
      if (is_end) ends.push_back(torch::autograd::impl::gradient_edge(leaves[i]));
    }
    if (roots.empty() || ends.empty()) return;
    PyThreadState* thread = PyEval_SaveThread();
    try {
      results.gradients = torch::autograd::Engine::get_default_engine().execute(
          roots, tangents, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/false, ends);
    } catch (...) {
      PyEval_RestoreThread(thread);
      throw;
    }
    PyEval_RestoreThread(thread);
  }

  std::string compare(const char* what, const Tensors& got, const Tensors& want, const Tensors& noise) const {
    if (got.size() != want.size()) return std::string("another number of ") + what + "s";
    for (size_t i = 0; i < want.size(); i++) {
      std::string text =
          describe_difference(got[i], want[i], i < noise.size() ? noise[i] : at::Tensor(), plan_.coarsest);
      if (!text.empty()) return std::string(what) + " " + std::to_string(i) + ": " + text;
    }
    return {};
  }

  std::string compare(const Results& got, const Results& want, const Results& noise) const {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < want.outputs.size() && i < got.outputs.size(); i++) {
      if (got.requires_grad[i] != want.requires_grad[i])
        return "output " + std::to_string(i) + ": requires_grad differs";
    }
    std::string text = compare("output", got.outputs, want.outputs, noise.outputs);
    if (text.empty()) text = compare("written input", got.written, want.written, noise.written);
    if (text.empty()) text = compare("gradient", got.gradients, want.gradients, noise.gradients);
    return text;
  }

  const std::shared_ptr<RegionCode>& code_;
  const RegionPlan& plan_;
  std::span<PyObject* const> originals_;
  std::vector<uint8_t> is_written_;
  bool has_noise_ = false;
};

}  // namespace

RegionCheck check_region(const std::shared_ptr<RegionCode>& code, std::span<PyObject* const> inputs) {
  return Checker(code, inputs).run();
}

}  // namespace reprise::host
