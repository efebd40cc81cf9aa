#include "doctor/recording.h"

#include <fstream>
#include <sstream>

#include "base/error.h"

namespace fourfold::doctor {
namespace {

constexpr std::string_view kFact = "fact ";

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

}  // namespace

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
