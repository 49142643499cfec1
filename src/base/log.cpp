#include "base/log.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace reprise::base {
namespace {

struct WordRow {
  std::string_view word;
  std::string_view doc;
};

constexpr WordRow kWords[] = {
#define X(name, word, doc) {word, doc},
#include "base/log_words.def"
#undef X
};
constexpr std::size_t kWordCount = std::size(kWords);
static_assert(kWordCount <= 32, "the words no longer fit in the mask");

struct SinkSlot {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;
};

// Never destroyed: threads may still log while the process ends.
SinkSlot& get_sink_slot() {
  static SinkSlot* slot = new SinkSlot;
  return *slot;
}

void write_lines(std::string_view lines) {
  std::shared_ptr<const LogSink> sink;
  {
    std::lock_guard lock(get_sink_slot().mutex);
    sink = get_sink_slot().sink;
  }
  if (sink) {
    (*sink)(lines);
  } else {
    std::fwrite(lines.data(), 1, lines.size(), stderr);
  }
}

std::string_view strip(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// Adds the bits of a list to `mask`; returns what was wrong, or nothing.
std::string parse_words(std::string_view words, std::uint32_t& mask) {
  while (!words.empty()) {
    const std::size_t comma = words.find(',');
    const std::string_view word = strip(words.substr(0, comma));
    words = comma == std::string_view::npos ? std::string_view() : words.substr(comma + 1);
    if (word.empty()) continue;
    if (word == "all") {
      mask = (std::uint64_t{1} << kWordCount) - 1;
      continue;
    }
    std::size_t i = 0;
    while (i < kWordCount && kWords[i].word != word) ++i;
    if (i == kWordCount) {
      std::string error = "unknown log word '" + std::string(word) + "'; expected all";
      for (const WordRow& row : kWords) error += ", " + std::string(row.word);
      return error;
    }
    mask |= std::uint32_t{1} << i;
  }
  return {};
}

std::uint32_t read_mask_from_environment() {
  const char* words = std::getenv("REPRISE_LOG");
  std::uint32_t mask = 0;
  if (words != nullptr) {
    const std::string error = parse_words(words, mask);
    if (!error.empty()) write_message("REPRISE_LOG: " + error);
  }
  return mask;
}

}  // namespace

namespace detail {
std::atomic<std::uint32_t> log_mask{read_mask_from_environment()};
}

std::string_view get_log_word_name(LogWord word) {
  const auto i = static_cast<std::size_t>(word);
  REPRISE_CHECK(i < kWordCount, "log word " + std::to_string(i) + " of " + std::to_string(kWordCount));
  return kWords[i].word;
}

void write_log(LogWord word, std::string_view text) {
  const std::string prefix = "[reprise:" + std::string(get_log_word_name(word)) + "] ";
  std::string lines;
  lines.reserve(text.size() + prefix.size() + 1);
  do {
    const std::size_t end = text.find('\n');
    lines += prefix;
    lines += text.substr(0, end);
    lines += '\n';
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  } while (!text.empty());
  write_lines(lines);
}

void write_message(std::string_view text) { write_lines("reprise: " + std::string(text) + "\n"); }

std::string set_log_words(std::string_view words) {
  std::uint32_t mask = 0;
  std::string error = parse_words(words, mask);
  if (error.empty()) detail::log_mask.store(mask, std::memory_order_relaxed);
  return error;
}

void set_log_sink(LogSink sink) {
  std::shared_ptr<const LogSink> next;
  if (sink) next = std::make_shared<const LogSink>(std::move(sink));
  {
    std::lock_guard lock(get_sink_slot().mutex);
    std::swap(get_sink_slot().sink, next);
  }
  // The old sink is destroyed here, outside the lock: its destructor may run user code.
}

std::string describe_log_words() {
  std::string text;
  for (const WordRow& row : kWords) {
    text += row.word;
    text.append(row.word.size() < 12 ? 12 - row.word.size() : 1, ' ');
    text += row.doc;
    text += '\n';
  }
  return text;
}

}  // namespace reprise::base
