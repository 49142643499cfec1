// Text tests of graphs: files of cases, each a text that goes in and the text that must come out.
//
// A file is a list of cases. A case is
//     // a sentence
//     <keyword> words that say what to do
//     <text in>
//     ----
//     <expected text>
//     ====
// The found text is compared line by line; a line "..." fits any number of lines. BLESS=1 writes the found texts. A
// case without its keyword line is a failure.
#pragma once

#include <functional>
#include <string>

namespace reprise::test {

/// Gives the found text for the words behind the keyword and the text in.
using RunTextCase = std::function<std::string(const std::string& words, const std::string& text)>;

/// Runs every *.gir file of the folder. `keyword`: "passes:", "show:" ...
void run_text_folder(const char* folder, const char* keyword, const RunTextCase& run_case);

}  // namespace reprise::test
