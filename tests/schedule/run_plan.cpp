// run_plan GRAPHS INPUTS OUTPUTS: plans and runs every graph of a file, for tests/schedule/compare_with_torch.py.
//
// Graphs are separated by lines "---". INPUTS holds the bytes of their inputs, one after the other, contiguous in
// their storages; OUTPUTS gets for each graph a byte 1 and the bytes of its outputs in row-major order, or a byte 0,
// the length of a text in 4 bytes and the text: what was not lowered or went wrong.
//
// With REPRISE_NATIVE=libtorch_cpu.so (a path) kernels run as machine code, with the functions of that library.
//
// run_plan --time GRAPHS: machine code only: the best of ten times of every launch, on one thread, inputs all zero.
// run_plan --print GRAPHS: the groups of every graph, with the text of its kernels and its program, and the time it
// took.
#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "../core/program_runner.h"
#include "codegen/cpu.h"
#include "graph/parser.h"
#include "graph/verify.h"
#include "kernel/text.h"
#include "schedule/schedule.h"
#include "toolchain/link.h"

using namespace reprise;

namespace {

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

struct Reader {
  std::string bytes;
  std::size_t next = 0;

  void take(void* to, std::size_t count) {
    if (next + count > bytes.size()) {
      std::fprintf(stderr, "the inputs are too short\n");
      std::exit(2);
    }
    std::memcpy(to, bytes.data() + next, count);
    next += count;
  }
};

std::int64_t get_storage_count(const graph::TensorMeta& meta) {
  std::int64_t count = meta.offset.get_constant() + 1;
  for (std::size_t d = 0; d < meta.rank; ++d) {
    if (meta.sizes()[d].get_constant() == 0) return 0;
    count += (meta.sizes()[d].get_constant() - 1) * meta.strides()[d].get_constant();
  }
  return count;
}

struct Machine {
  std::unique_ptr<codegen::CpuCompiler> compiler;
  std::unique_ptr<toolchain::Linker> linker;
};

std::unique_ptr<Machine> make_machine() {
  const char* library = std::getenv("REPRISE_NATIVE");
  if (library == nullptr) return nullptr;
  if (dlopen(library, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(2);
  }
  auto compiler = codegen::make_cpu_compiler(codegen::get_host_target());
  auto linker = toolchain::make_linker(toolchain::find_process_symbol);
  if (!compiler || !linker) {
    std::fprintf(stderr, "no code generator\n");
    std::exit(2);
  }
  return std::make_unique<Machine>(Machine{std::move(compiler).value(), std::move(linker).value()});
}

std::string run_graph(const std::string& text, Reader& reader, std::string& out, Machine* machine) {
  auto parsed = graph::parse_graph(text);
  if (const auto* error = std::get_if<graph::ParseError>(&parsed)) {
    std::fprintf(stderr, "line %d: %s\n%s\n", error->line, error->text.c_str(), text.c_str());
    std::exit(2);
  }
  const graph::Graph& graph = std::get<graph::Graph>(parsed);
  graph::verify_graph(graph);
  std::vector<test::RunValue> inputs;
  for (const graph::Input& input : graph.inputs) {
    test::RunValue value;
    if (graph.get_value(input.value).kind != graph::ValueKind::Tensor) {
      reader.take(&value.bits, 8);
      inputs.push_back(value);
      continue;
    }
    const graph::TensorMeta& meta = graph.get_meta(input.value);
    value.dtype = meta.dtype;
    for (const sym::Int size : meta.sizes()) value.sizes.push_back(size.get_constant());
    for (const sym::Int stride : meta.strides()) value.strides.push_back(stride.get_constant());
    value.offset = meta.offset.get_constant();
    value.storage =
        std::make_shared<std::vector<std::uint8_t>>(get_storage_count(meta) * types::get_size_bytes(meta.dtype));
    reader.take(value.storage->data(), value.storage->size());
    inputs.push_back(value);
  }
  auto plan = schedule::make_plan(graph);
  if (!plan) return plan.unsupported().text;
  test::ProgramRunner runner(plan.value());
  std::vector<std::shared_ptr<toolchain::LoadedCode>> codes;
  if (machine != nullptr) {
    for (const kernel::Kernel& kernel : plan.value().kernels) {
      auto code = machine->compiler->compile(kernel, codegen::Tier::Full);
      if (!code) return "compiler: " + code.unsupported().text + "\n" + kernel::print(kernel);
      auto loaded = machine->linker->load(code.value());
      if (!loaded) return "linker: " + loaded.unsupported().text;
      codes.push_back(loaded.value());
    }
    runner.run_kernel = [&](std::size_t code, void* const* buffers, const std::int64_t* words, std::int64_t begin,
                            std::int64_t end) { codes[code]->get_functions()[0](buffers, words, begin, end); };
  }
  if (std::string error = runner.run(inputs); !error.empty()) return error;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const test::RunValue& value = runner.results()[i];
    const std::size_t width = types::get_size_bytes(value.dtype);
    for (const std::int64_t place : value.list_places())
      out.append(reinterpret_cast<const char*>(value.storage->data()) + place, width);
  }
  return {};
}

std::vector<std::shared_ptr<toolchain::LoadedCode>> load_kernels(Machine& machine, const schedule::Plan& plan) {
  std::vector<std::shared_ptr<toolchain::LoadedCode>> codes;
  for (const kernel::Kernel& kernel : plan.kernels)
    codes.push_back(machine.linker->load(machine.compiler->compile(kernel, codegen::Tier::Full).value()).value());
  return codes;
}

int time_plans(const char* path) {
  const std::unique_ptr<Machine> machine = make_machine();
  std::istringstream graphs(read_file(path));
  std::string line;
  std::string text;
  while (machine != nullptr && std::getline(graphs, line)) {
    if (line != "---") {
      text += line + "\n";
      continue;
    }
    auto parsed = graph::parse_graph(text);
    text.clear();
    const graph::Graph& graph = std::get<graph::Graph>(parsed);
    const schedule::Plan plan = schedule::make_plan(graph).value();
    const auto codes = load_kernels(*machine, plan);
    std::vector<double> best;
    for (int round = 0; round < 10; ++round) {
      std::vector<test::RunValue> inputs;
      for (const graph::Input& input : graph.inputs) {
        const graph::TensorMeta& meta = graph.get_meta(input.value);
        test::RunValue value;
        value.dtype = meta.dtype;
        value.storage =
            std::make_shared<std::vector<std::uint8_t>>(get_storage_count(meta) * types::get_size_bytes(meta.dtype));
        inputs.push_back(value);
      }
      test::ProgramRunner runner(plan);
      std::size_t launch = 0;
      runner.call_library = [](test::ProgramRunner& of, const program::Step& step) {
        for (const program::SlotId slot : step.results) {
          if (slot.is_valid()) of.slot(slot) = of.make(slot);
        }
        return std::string();
      };
      runner.run_kernel = [&](std::size_t code, void* const* buffers, const std::int64_t* words, std::int64_t begin,
                              std::int64_t end) {
        const auto start = std::chrono::steady_clock::now();
        codes[code]->get_functions()[0](buffers, words, begin, end);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (best.size() <= launch) best.push_back(seconds);
        best[launch] = std::min(best[launch], seconds);
        ++launch;
      };
      if (const std::string error = runner.run(inputs); !error.empty()) std::printf("%s\n", error.c_str());
    }
    for (std::size_t i = 0; i + 1 < best.size(); i += 2) std::printf("%.1f us ", (best[i] + best[i + 1]) * 1e6);
    std::printf("\n");
  }
  return 0;
}

int print_plans(const char* path) {
  std::istringstream graphs(read_file(path));
  std::string line;
  std::string text;
  while (std::getline(graphs, line)) {
    if (line != "---") {
      text += line + "\n";
      continue;
    }
    auto parsed = graph::parse_graph(text);
    text.clear();
    if (const auto* error = std::get_if<graph::ParseError>(&parsed)) {
      std::printf("line %d: %s\n", error->line, error->text.c_str());
      return 2;
    }
    const graph::Graph& graph = std::get<graph::Graph>(parsed);
    const auto start = std::chrono::steady_clock::now();
    auto plan = schedule::make_plan(graph);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%s", schedule::print_groups(graph).c_str());
    if (!plan) {
      std::printf("%s\n", plan.unsupported().text.c_str());
      continue;
    }
    for (const kernel::Kernel& kernel : plan.value().kernels) std::printf("%s\n", kernel::print(kernel).c_str());
    std::printf("%s", program::print(plan.value().program).c_str());
    const schedule::Statistics& statistics = plan.value().statistics;
    std::printf("%u launches of %zu kernels, %u native ops, %u library calls, arena %lld of %lld bytes, %.1f ms\n",
                statistics.launches, plan.value().kernels.size(), statistics.native_ops, statistics.extern_ops,
                static_cast<long long>(plan.value().program.arena_bytes),
                static_cast<long long>(statistics.temporary_bytes), seconds * 1e3);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--print") return print_plans(argv[2]);
  if (argc == 3 && std::string_view(argv[1]) == "--time") return time_plans(argv[2]);
  if (argc != 4) {
    std::fprintf(stderr, "run_plan GRAPHS INPUTS OUTPUTS\n");
    return 2;
  }
  std::istringstream graphs(read_file(argv[1]));
  Reader reader{read_file(argv[2])};
  std::ofstream results(argv[3], std::ios::binary);
  const std::unique_ptr<Machine> machine = make_machine();
  std::string line;
  std::string text;
  while (std::getline(graphs, line)) {
    if (line != "---") {
      text += line + "\n";
      continue;
    }
    std::string out;
    std::string error;
    try {
      error = run_graph(text, reader, out, machine.get());
    } catch (const std::exception& failure) {
      error = failure.what();
    }
    text.clear();
    if (error.empty()) {
      results.put(1);
      results.write(out.data(), static_cast<std::streamsize>(out.size()));
      continue;
    }
    results.put(0);
    const auto length = static_cast<std::uint32_t>(error.size());
    results.write(reinterpret_cast<const char*>(&length), 4);
    results.write(error.data(), length);
  }
  return 0;
}
