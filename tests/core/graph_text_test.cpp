#include "graph/builder.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verify.h"
#include "test.h"

using namespace reprise::graph;

namespace {

std::string read_and_print(std::string_view text) {
  auto result = parse_graph(text);
  if (const auto* error = std::get_if<ParseError>(&result))
    return "line " + std::to_string(error->line) + ": " + error->text;
  const Graph& graph = std::get<Graph>(result);
  if (const std::string error = find_graph_error(graph); !error.empty()) return error;
  return print_graph(graph);
}

constexpr const char* kEverything = R"(graph {
  symbol s0 in [2, 4096] hint 8
  %0 = parameter : float32[8, s0*2 + 1]
  %1 = input : float32[8, 4; 1, 8] @2 storage 3 cuda:1 conj
  %3 = input : int {s0}
  %5 = input : float32[4] storage 3 cuda:1
  %2 = constant 0 : int64[]
  %4 = aten::foo.bar(%0, wrapped 2.0, 1, -0.5, -9223372036854775808, 1e-05, inf, nan, none, true, [1, {s0 + 1}, [%2, none]]) : float32[8, 4]
  %6, [%7, _], _ = vendor::op("te\"xt", float16, cuda:1, strided, channels_last, complex(1.0, -2.5)) : float32[], [int64[2], _], _ !17
  %0 = aten::add_.Tensor(mut %0, %1, 1)
  %8 = scalar::item(%2) : float
  backward:
  vendor::nothing()
  forward:
  vendor::nothing(%8)
  return %4, input 0, view of input 1 as float32[4; 2] @3, view of output 0 as float32[2], output 0, none
  effect bump input 0
  gradient of input 0: %4
  gradient of input 1: _
  save %4, %6
}
)";

constexpr const char* kFunctional = R"(graph functional {
  %0 = buffer mutated : float32[3]
  %1 = input : float32[3]
  _ = aten::add_.Tensor(%0 => %7, %1, 1) : _, float32[3]
  aten::_foreach_mul_.Scalar([%7, %1] => [%9, %3], 2.0) : float32[3], float32[3]
  return %9
  effect copy input 0 <- %9
}
)";

}  // namespace

TEST("the text of a graph reads back as the same text") {
  EXPECT_EQ(read_and_print(kEverything), kEverything);
  EXPECT_EQ(read_and_print(kFunctional), kFunctional);
}

TEST("a graph text with a mistake is refused with its line") {
  EXPECT_EQ(read_and_print("graph {\n  %0 = input : float33[2]\n}\n"),
            "line 2: found \"float33[2]\", expected a dtype");
  EXPECT_EQ(read_and_print("graph {\n  %1 = aten::foo(%0) : float32[]\n}\n"),
            "line 2: found %0, expected a value that was computed before");
  EXPECT_EQ(read_and_print("graph {\n\n  %0 = input : float32[2]\n"), "line 3: found the end of the text, expected }");
}

TEST("the verifier finds broken graphs") {
  const auto context = std::make_shared<Context>();
  Graph graph(context);
  Builder builder(graph);
  const ValueId x = builder.add_input({2, 3}, reprise::types::DType::Float32);
  EXPECT_EQ(find_graph_error(graph), "");
  graph.outputs.push_back({OutputKind::Value, ValueId(7), 0, {}});
  EXPECT_EQ(find_graph_error(graph), "output 0 is %7, which is not computed");
  graph.outputs[0] = {OutputKind::ViewOfInput, {}, 4, graph.get_meta(x)};
  EXPECT_EQ(find_graph_error(graph), "output 0 names input 4");
  graph.outputs.clear();
  graph.form = Form::Functional;
  graph.inputs[0].is_mutated = true;
  EXPECT_EQ(find_graph_error(graph), "input 0 is marked mutated and has no effect");
}

TEST("op names are found, and unknown ones are interned") {
  EXPECT(find_known_op("aten::add.Tensor") == OpId::add_Tensor);
  EXPECT(!find_known_op("aten::add").has_value());
  for (std::uint32_t i = 0; i < kKnownOpCount; ++i) {
    const OpId op = static_cast<OpId>(i);
    EXPECT(find_known_op(get_op_info(op).name) == op);
  }
  Context context;
  const OpId op = context.intern_op("vendor::op");
  EXPECT(!is_known(op));
  EXPECT(context.intern_op("vendor::op") == op);
  EXPECT_EQ(context.get_op_name(op), "vendor::op");
  EXPECT(get_op_info(op).family == OpFamily::Unknown);
}
