#include "toolchain/compile_cpp.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "toolchain/temporary_folder_impl.h"

extern "C" char** environ;

namespace reprise::toolchain {
namespace {

// Neither contraction nor anything else that changes bits; errno and traps are read by nobody. simd without OpenMP's
// library, and libstdc++ only if something of it is called.
constexpr const char* kFlags[] = {"-std=c++20",
                                  "-O3",
                                  "-march=native",
                                  "-ffp-contract=off",
                                  "-fno-math-errno",
                                  "-fno-trapping-math",
                                  "-fno-strict-aliasing",
                                  "-fopenmp-simd",
                                  "-fPIC",
                                  "-shared",
                                  "-w",
                                  "-Wl,--as-needed"};

base::Unsupported fail(std::string text) { return {base::UnsupportedCode::CodegenFailed, std::move(text)}; }

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The first line that names an error, or the first that is not empty.
std::string find_message(const std::string& text) {
  std::string first;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, std::min<std::size_t>(end - at, 300));
    at = end + 1;
    if (line.find("error") != std::string::npos) return line;
    if (first.empty()) first = line;
  }
  return first;
}

// An empty text, or what went wrong. What the command prints goes to the files.
std::string run(const std::vector<std::string>& command, const std::string& out, const std::string& log) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&files, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  // Signals as in a new process: Python ignores SIGPIPE, and threads of ours may block others.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return command[0] + " could not be started: " + std::strerror(error);

  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno == EINTR) continue;
    status = 0;  // somebody else has taken the status: its file tells
    break;
  }
  if (status == 0) return {};
  std::string text = command[0] + (WIFSIGNALED(status) ? " ended by signal " + std::to_string(WTERMSIG(status))
                                                       : " ended with status " + std::to_string(WEXITSTATUS(status)));
  const std::string message = find_message(read_text(log));
  return message.empty() ? text : text + ": " + message;
}

std::vector<std::string> split(const char* text) {
  std::vector<std::string> words;
  for (const char* at = text; *at != 0;) {
    const std::size_t length = std::strcspn(at, " \t");
    if (length > 0) words.emplace_back(at, length);
    at += length;
    at += std::strspn(at, " \t");
  }
  return words;
}

bool is_on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const char* at = path == nullptr ? "" : path; *at != 0;) {
    const std::size_t length = std::strcspn(at, ":");
    if (length > 0 && ::access((std::string(at, length) + "/" + name).c_str(), X_OK) == 0) return true;
    at += length;
    if (*at == ':') ++at;
  }
  return false;
}

std::vector<std::string> make_command(const std::vector<std::string>& compiler) {
  std::vector<std::string> command = compiler;
  command.insert(command.end(), std::begin(kFlags), std::end(kFlags));
  return command;
}

}  // namespace

std::vector<std::string> get_cpp_command() {
  if (const char* asked = std::getenv("CXX"); asked != nullptr) {
    if (std::vector<std::string> words = split(asked); !words.empty()) return words;
  }
  for (const char* name : {"c++", "g++", "clang++"}) {
    if (is_on_path(name)) return {name};
  }
  return {};
}

base::Result<CppCompiler> find_cpp_compiler() {
  CppCompiler compiler;
  compiler.command = get_cpp_command();
  if (compiler.command.empty()) return fail("no C++ compiler: CXX is not set, PATH has none of c++, g++ and clang++");
  const TemporaryFolder folder;
  if (folder.get_path().empty()) return fail(std::string("no temporary directory: ") + std::strerror(errno));
  std::vector<std::string> command = make_command(compiler.command);
  command.insert(command.end(), {"-dM", "-E", "-x", "c++", "/dev/null"});
  const std::string out = folder.get_path() + "/macros";
  if (std::string error = run(command, out, folder.get_path() + "/log"); !error.empty()) return fail(std::move(error));
  const std::string macros = read_text(out);
  if (macros.find("#define __cplusplus") == std::string::npos) return fail(command[0] + " is no C++ compiler");
  base::WideHasher hasher;
  for (const std::string& word : command) hasher.add(std::string_view(word));
  compiler.identity = hasher.add(std::string_view(macros)).finish();
  return compiler;
}

base::Result<std::vector<std::uint8_t>> compile_cpp(const CppCompiler& compiler, std::string_view source) {
  const TemporaryFolder folder;
  if (folder.get_path().empty()) return fail(std::string("no temporary directory: ") + std::strerror(errno));
  const std::string input = folder.get_path() + "/kernels.cpp", output = folder.get_path() + "/kernels.so";
  {
    std::ofstream file(input, std::ios::binary);
    file << source;
    file.close();
    if (!file) return fail("cannot write to " + folder.get_path());
  }
  std::vector<std::string> command = make_command(compiler.command);
  command.insert(command.end(), {"-o", output, input});
  std::string error = run(command, folder.get_path() + "/out", folder.get_path() + "/log");
  if (!error.empty()) return fail(std::move(error));
  const std::string bytes = read_text(output);
  if (bytes.empty()) return fail(command[0] + " made no file");
  return std::vector<std::uint8_t>(bytes.begin(), bytes.end());
}

}  // namespace reprise::toolchain
