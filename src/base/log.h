// The log of what Reprise does, switched by words: REPRISE_LOG=exits,guards or set_log_words().
//
// Ask is_log_enabled() before building a text; it is one relaxed load. The words are the rows of log_words.def.
// write_log() prints every line of the text behind a prefix, "[reprise:exits] ", to the sink: stderr unless
// set_log_sink() gave another. Safe on every thread; the sink is called without any lock of ours held, so it may take
// the GIL, and it must be safe on every thread itself.
// Reports of things the user must see (a refused option) do not go here: use write_message().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/export.h"

namespace reprise::base {

enum class LogWord : std::uint8_t {
#define X(name, word, doc) name,
#include "base/log_words.def"
#undef X
};

namespace detail {
extern REPRISE_EXPORT std::atomic<std::uint32_t> log_mask;
}

inline bool is_log_enabled(LogWord word) noexcept {
  return (detail::log_mask.load(std::memory_order_relaxed) >> static_cast<unsigned>(word)) & 1u;
}

REPRISE_EXPORT std::string_view get_log_word_name(LogWord word);

// Writes whether the word is enabled or not; the caller has asked already.
REPRISE_EXPORT void write_log(LogWord word, std::string_view text);

// One line "reprise: text" for the user, whatever words are on. Goes to the same sink.
REPRISE_EXPORT void write_message(std::string_view text);

// Replaces the enabled words by a comma-separated list; "" is none, "all" is every word.
// Returns an empty string, or what was wrong; then nothing changed.
REPRISE_EXPORT std::string set_log_words(std::string_view words);

// Where complete lines go (prefix and newline included). An empty function means stderr.
using LogSink = std::function<void(std::string_view lines)>;
REPRISE_EXPORT void set_log_sink(LogSink sink);

// One line a word: the word and what it prints.
REPRISE_EXPORT std::string describe_log_words();

}  // namespace reprise::base
