#include "runtime/compile_context.h"

#include <algorithm>

#include "base/check.h"
#include "entry/entry.h"

namespace reprise::runtime {
namespace {

constexpr size_t kMaxCountedCodes = 4096;

}  // namespace

CompileContext::CompileContext(CompileRequests& requests, base::Options options, PyObject* backend, std::string name)
    : requests(requests), options(std::move(options)), name(std::move(name)), backend_(Py_NewRef(backend)) {}

CompileContext::~CompileContext() {
  codes_.clear();
  Py_DECREF(backend_);
}

bool CompileContext::is_native() const {
  return PyUnicode_Check(backend_) && PyUnicode_CompareWithASCIIString(backend_, "native") == 0;
}

bool CompileContext::is_aot_eager() const {
  return PyUnicode_Check(backend_) && PyUnicode_CompareWithASCIIString(backend_, "aot_eager") == 0;
}

const std::shared_ptr<host::TraceContext>& CompileContext::trace_context() {
  if (trace_context_ == nullptr) trace_context_ = std::make_shared<host::TraceContext>();
  return trace_context_;
}

Place& CompileContext::get_place(PyCodeObject* code, int32_t unit) {
  std::unique_ptr<CodePlaces>& places = codes_[code];
  if (places == nullptr) {
    host::CodeInfo* info = host::get_code_info(code);
    REPRISE_CHECK(info != nullptr, "out of memory");
    places = std::make_unique<CodePlaces>(*this, code, info);
  }
  return places->get(unit);
}

Place* CompileContext::find_place(PyCodeObject* code, int32_t unit) const {
  CodePlaces* places = find_code_places(code);
  return places == nullptr ? nullptr : places->find(unit);
}

std::vector<Place*> CompileContext::list_places() const {
  std::vector<Place*> result;
  for (const auto& [code, places] : codes_) {
    for (const std::unique_ptr<Place>& place : places->places()) result.push_back(place.get());
  }
  for (size_t i = 0; i < result.size(); i++) {  // it grows
    for (const EntryRef& entry : result[i]->entries()) {
      for (const PublishedEntry::Branch& branch : entry->branches()) result.push_back(branch.place.get());
    }
  }
  std::sort(result.begin(), result.end(), [](Place* a, Place* b) { return a->serial() < b->serial(); });
  return result;
}

uint32_t CompileContext::count_plain_call(PyCodeObject* code) {
  if (plain_call_counts_.size() > kMaxCountedCodes) plain_call_counts_.clear();
  return ++plain_call_counts_[code];
}

void CompileContext::reset() {
  plain_call_counts_.clear();
  std::vector<Place*> tops;
  for (Place* place : list_places()) {
    if (!place->is_branch()) tops.push_back(place);  // branches go with their entries
  }
  for (Place* place : tops) place->reset();
  branch_count = 0;
  takes_data_sizes = takes_gradients = true;
  whole_functions.clear();
  kernel_family_ = std::make_shared<kernel::KernelFamily>();
  for (const auto& [code, places] : codes_) places->forget_back_edges();
}

int CompileContext::traverse(visitproc visit, void* arg) const {
  Py_VISIT(backend_);
  for (Place* place : list_places()) {
    for (const EntryRef& entry : place->entries()) {
      if (int result = entry->entry().traverse(visit, arg)) return result;
    }
  }
  return 0;
}

void CompileContext::clear() { reset(); }

}  // namespace reprise::runtime
