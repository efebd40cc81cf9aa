#include "doctor/recording.h"

#include <pwd.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace fourfold::doctor {
namespace {

constexpr std::string_view kFact = "fact ";
constexpr std::size_t kNameLengthMin = 3;  // a user "a" would empty every word

class RecordedSource final : public Source {
 public:
  explicit RecordedSource(const Recording& recording) : answers_(recording.answers) {}
  std::optional<std::string> ask(const std::string& question) override {
    const auto found = answers_.find(question);
    return found == answers_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::map<std::string, std::string> answers_;
};

class Recorder final : public Source {
 public:
  Recorder(Source& inner, Recording& recording)
      : inner_(inner), recording_(recording), names_(names_here()) {}
  std::optional<std::string> ask(const std::string& question) override {
    auto answer = inner_.ask(question);
    if (answer) recording_.answers[question] = without_names(*answer, names_);
    return answer;
  }

 private:
  Source& inner_;
  Recording& recording_;
  Names names_;
};

bool is_word(char letter) { return std::isalnum(static_cast<unsigned char>(letter)) != 0; }

void replace_words(std::string& text, const std::string& word, const std::string& with) {
  if (word.size() < kNameLengthMin) return;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    const std::size_t end = at + word.size();
    const bool is_whole = (at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end]));
    if (is_whole) text.replace(at, word.size(), with);
    at += is_whole ? with.size() : 1;
  }
}

// Hex digits in groups of these lengths: 8-4-4-4-12 for a UUID, 2:2:2:2:2:2 for a MAC address.
void blank_groups(std::string& text, const std::vector<std::size_t>& lengths, char between) {
  std::size_t size = lengths.size() - 1;
  for (const std::size_t length : lengths) size += length;
  for (std::size_t at = 0; at + size <= text.size(); ++at) {
    std::size_t place = at;
    bool fits = at == 0 || !is_word(text[at - 1]);
    for (std::size_t group = 0; group < lengths.size() && fits; ++group) {
      for (std::size_t i = 0; i < lengths[group] && fits; ++i)
        fits = std::isxdigit(static_cast<unsigned char>(text[place++])) != 0;
      if (group + 1 < lengths.size()) fits = fits && text[place++] == between;
    }
    if (!fits || (place < text.size() && (is_word(text[place]) || text[place] == between))) continue;
    for (std::size_t i = at; i < place; ++i)
      if (text[i] != between) text[i] = '0';
  }
}

// "(root@build7)" of a kernel that was built by hand.
void blank_mail(std::string& text) {
  for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + 1)) {
    const auto is_part = [](char letter) {
      return is_word(letter) || letter == '-' || letter == '_' || letter == '.';
    };
    std::size_t begin = at, end = at + 1;
    while (begin > 0 && is_part(text[begin - 1])) --begin;
    while (end < text.size() && is_part(text[end])) ++end;
    if (begin == at || end == at + 1) continue;
    text.replace(begin, end - begin, "user@host");
    at = begin + 4;
  }
}

}  // namespace

Names names_here() {
  Names names;
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) names.host = host;
  if (const passwd* entry = getpwuid(getuid()); entry != nullptr) names.user = entry->pw_name;
  if (names.user == "root") names.user.clear();  // not a person's name
  if (const char* home = std::getenv("HOME"); home != nullptr && std::string_view(home) != "/root")
    names.home = home;
  return names;
}

std::string without_names(std::string_view text, const Names& names) {
  std::string out(text);
  replace_words(out, names.home, "/home/user");
  replace_words(out, names.user, "user");
  replace_words(out, names.host, "host");
  blank_groups(out, {8, 4, 4, 4, 12}, '-');
  blank_groups(out, {2, 2, 2, 2, 2, 2}, ':');
  blank_mail(out);
  return out;
}

Recording parse_recording(std::string_view text, std::string_view what) {
  Recording recording;
  std::string* open = nullptr;  // the answer that "|" lines belong to
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.starts_with('|')) {
      if (open == nullptr)
        fail(Code::invalid_request, "{}:{}: a line with | follows no question", what, number);
      *open += line.substr(line.starts_with("| ") ? 2 : 1) + "\n";
      continue;
    }
    open = nullptr;
    if (line.empty() || line.starts_with('#')) continue;
    const auto equals = line.find(" = ");
    if (line.starts_with(kFact)) {
      if (equals == std::string::npos)
        fail(Code::invalid_request, "{}:{}: a fact is written: fact NAME = VALUE", what, number);
      recording.facts.set_value(line.substr(kFact.size(), equals - kFact.size()),
                                parse_value(std::string_view(line).substr(equals + 3)));
    } else if (equals == std::string::npos) {
      open = &recording.answers[line];
    } else {
      recording.answers[line.substr(0, equals)] = line.substr(equals + 3);
    }
  }
  return recording;
}

Recording read_recording(const std::filesystem::path& folder) {
  const auto path = folder / kRecordingFile;
  std::ifstream file(path);
  std::stringstream text;
  if (!file || !(text << file.rdbuf()))
    fail_with_hint(Code::io, "A recording is a folder written by fourfold doctor --record DIR.",
                   "{} cannot be read", path.string());
  return parse_recording(text.str(), path.string());
}

std::string recording_text(const Recording& recording) {
  std::string out =
      "# What `fourfold doctor` asked this machine, and what it answered; names are taken out.\n";
  for (const auto& [question, answer] : recording.answers) {
    const std::string line = trimmed(answer);
    if (line.find('\n') == std::string::npos && !line.empty()) {
      out += question + " = " + line + "\n";
      continue;
    }
    out += question + "\n";
    for (const std::string& part : split(answer, '\n')) out += "| " + part + "\n";
  }
  for (const auto& [name, value] : recording.facts.all())
    out += std::string(kFact) + name + " = " + exact_text(value) + "\n";
  return out;
}

std::unique_ptr<Source> recorded_source(const Recording& recording) {
  return std::make_unique<RecordedSource>(recording);
}

std::unique_ptr<Source> recorder(Source& inner, Recording& recording) {
  return std::make_unique<Recorder>(inner, recording);
}

}  // namespace fourfold::doctor
