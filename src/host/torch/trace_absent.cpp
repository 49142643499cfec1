// Builds without torch: nothing can be traced, no region has code.
#include <cstdlib>

#include "host/torch/boxed_call.h"
#include "host/torch/check_region.h"
#include "host/torch/matrix_product.h"
#include "host/torch/native_program.h"
#include "host/torch/region_node.h"
#include "host/torch/trace_tensor.h"

namespace reprise::host {

struct TraceContext::Memo {};
struct EntryState::State {};
struct UndoPoint::Saved {};
struct TraceConstants::Values {};
struct TraceRun::State {};
struct ValueList::Values {};
struct BoxedProgram::State {};
struct NativeProgram::State {};
struct ArenaPool::Block {};

namespace {
// Never reached: find_trace_obstacle() says so first.
[[noreturn]] void fail() { std::abort(); }
}  // namespace

const OpInfo* find_op(std::string_view) { return nullptr; }
const char* text_of(ScalarOp) { fail(); }
std::optional<ScalarOp> find_scalar_op(std::string_view) { return std::nullopt; }
std::optional<types::DType> dtype_of_torch(int) { return std::nullopt; }
int torch_number_of(types::DType) { fail(); }
std::optional<types::Device> device_of_torch(int, int) { return std::nullopt; }
std::pair<int, int> torch_numbers_of(types::Device) { fail(); }

TraceContext::TraceContext() = default;
TraceContext::~TraceContext() = default;
EntryState::EntryState() = default;
EntryState EntryState::capture() { return {}; }
UndoPoint::UndoPoint() = default;
UndoPoint::~UndoPoint() = default;
void UndoPoint::restore() const {}
TraceConstants::TraceConstants() = default;
TraceConstants::~TraceConstants() = default;
TraceConstants::TraceConstants(TraceConstants&&) noexcept = default;
TraceConstants& TraceConstants::operator=(TraceConstants&&) noexcept = default;
size_t TraceConstants::size() const { return 0; }
std::string find_trace_obstacle() { return "a build without torch"; }

bool is_traced_elsewhere() { return false; }
TraceInput describe_input(PyObject*) { return {}; }
InputIdentity identify_input(PyObject*) { fail(); }

bool has_gradient_hooks(PyObject*) { fail(); }
bool keeps_gradient(PyObject*) { fail(); }
TraceRun::TraceRun(TraceContext&, OpSink&, const EntryState&) { fail(); }
TraceRun::~TraceRun() = default;
PyObject* TraceRun::add_input(const TraceInput&) { fail(); }
PyObject* TraceRun::add_number(TraceValueKind, TraceValueId&) { fail(); }
TraceValueId TraceRun::input_gradient(size_t) const { fail(); }
TracedTensor TraceRun::describe(PyObject*) const { fail(); }
void TraceRun::set_gradient(PyObject*, PyObject*) { fail(); }
PyObject* TraceRun::get_gradient(PyObject*) const { fail(); }
bool TraceRun::is_grad_mode() const { fail(); }
bool TraceRun::run_backward(std::span<PyObject* const>, std::span<const std::vector<int64_t>>,
                            std::vector<TraceValueId>&) {
  fail();
}
PyObject* TraceRun::item(PyObject*) { fail(); }
TraceValueId TraceRun::get_rng_state() { fail(); }
void TraceRun::set_rng_state(TraceValueId) { fail(); }
const std::string& TraceRun::failure() const { fail(); }
TraceConstants TraceRun::take_constants() { fail(); }

ValueList::ValueList() = default;
ValueList::~ValueList() = default;
ValueList::ValueList(ValueList&&) noexcept = default;
ValueList& ValueList::operator=(ValueList&&) noexcept = default;
size_t ValueList::size() const { return 0; }
void ValueList::clear() {}
void ValueList::add_tensor(PyObject*) { fail(); }
PyObject* ValueList::get_object(size_t) const { fail(); }
void append_constants(ValueList&, const TraceConstants&, std::span<const int32_t>) { fail(); }

BoxedProgram::BoxedProgram() = default;
BoxedProgram::~BoxedProgram() = default;
BoxedProgram::BoxedProgram(BoxedProgram&&) noexcept = default;
BoxedProgram& BoxedProgram::operator=(BoxedProgram&&) noexcept = default;
int32_t BoxedProgram::add_slot() { fail(); }
void BoxedProgram::add_input(int32_t, TraceValueKind) { fail(); }
void BoxedProgram::add_constant(int32_t, const TraceConstants&, int32_t) { fail(); }
void BoxedProgram::add_instruction(BoxedInstruction) { fail(); }
void BoxedProgram::add_output(int32_t, bool) { fail(); }
size_t BoxedProgram::instruction_count() const { return 0; }
size_t BoxedProgram::clone_count() const { return 0; }
void BoxedProgram::run(ValueList&&, ValueList&) const { fail(); }

ArenaPool::ArenaPool() = default;
ArenaPool::~ArenaPool() = default;
base::Result<std::unique_ptr<NativeProgram>> NativeProgram::make(const program::Program&, std::shared_ptr<KernelTable>,
                                                                 std::shared_ptr<ArenaPool>, const TraceConstants&,
                                                                 std::span<const uint32_t>, bool) {
  fail();
}
bool uses_onednn_products(base::Gemm) { return false; }
bool is_onednn_product(int64_t, int64_t, int64_t, int64_t) { return false; }
NativeProgram::~NativeProgram() = default;
void NativeProgram::run(ValueList&&, ValueList&) const { fail(); }
size_t NativeProgram::instruction_count() const { return 0; }
size_t NativeProgram::product_count() const { return 0; }
RegionCheck check_region(const std::shared_ptr<RegionCode>&, std::span<PyObject* const>) { fail(); }
bool draws_many_at_a_time() { return false; }
void* find_torch_symbol(std::string_view) { return nullptr; }

uint64_t BackwardKey::hash() const { return 0; }
bool says_graph_is_freed(const std::string&) { return false; }
bool call_region(const std::shared_ptr<RegionCode>&, std::span<PyObject* const>, std::vector<PyObject*>&) { fail(); }

}  // namespace reprise::host
