#include "server/api/notes.h"

#include <algorithm>

#include "server/api/request_error.h"

namespace fourfold::server::api {
namespace {

constexpr std::size_t kNotesMax = 32;      // of one request
constexpr std::size_t kNameBytesMax = 64;  // of one note
constexpr std::size_t kHeaderBytesMax = 512;
constexpr std::size_t kSaidMax = 256;  // in the log

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-.[]").find(c) != std::string_view::npos;
}

// Indices are left out, so that a hundred messages with one strange field are one note.
std::string plain_name(std::string_view place, std::string_view what) {
  std::string out;
  bool in_index = false;
  for (const char c : place) {
    in_index = in_index && c >= '0' && c <= '9';
    if (in_index) continue;
    out += is_plain(c) ? c : '?';
    in_index = c == '[';
  }
  if (!what.empty()) out += '=';
  for (const char c : what) out += is_plain(c) ? c : '?';
  if (out.size() > kNameBytesMax) {
    out.resize(kNameBytesMax - 3);
    out += "...";
  }
  return out;
}

bool is_ignored(NoteKind kind) {
  return kind != NoteKind::content && kind != NoteKind::length && kind != NoteKind::cut;
}
bool is_number(NoteKind kind) { return kind == NoteKind::length || kind == NoteKind::cut; }

std::string sentence(NoteKind kind, std::string_view place, std::string_view what) {
  switch (kind) {
    case NoteKind::field:
      return what.empty() ? fourfold::format("{} is not a field this server knows", place)
                          : fourfold::format("{} is {}, which does nothing here", place, what);
    case NoteKind::tool: return fourfold::format("{} is {}, a tool this server does not run", place, what);
    case NoteKind::item:
      return fourfold::format("{} is {}, which this server cannot show the model", place, what);
    case NoteKind::content: return fourfold::format("{} is {}; this model reads text only", place, what);
    case NoteKind::length:
      return fourfold::format("{} asks for more than the {} tokens the context has left", place, what);
    case NoteKind::cut: return fourfold::format("{} drops {} tokens of the prompt", place, what);
    case NoteKind::schema: return fourfold::format("{} says {}, which has no effect", place, what);
  }
  return {};
}

}  // namespace

std::string_view label_of(NoteKind kind) {
  switch (kind) {
    case NoteKind::field: return "field";
    case NoteKind::tool: return "tool";
    case NoteKind::item: return "item";
    case NoteKind::content: return "content";
    case NoteKind::length: return "length";
    case NoteKind::cut: return "cut";
    case NoteKind::schema: return "schema";
  }
  return {};
}

void Notes::add(NoteKind kind, std::string_view place, std::string_view what) {
  if (strict_ && kind != NoteKind::cut)
    refuse(std::string(place), "{}, and --strict refuses such requests", sentence(kind, place, what));
  Note note{kind, plain_name(place, what)};
  if (std::ranges::find(notes_, note) != notes_.end()) return;
  if (notes_.size() < kNotesMax)
    notes_.push_back(std::move(note));
  else
    more_ = true;
}

std::vector<std::pair<std::string, std::string>> Notes::headers() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (const bool ignored : {true, false}) {
    std::string value;
    bool cut = more_ && ignored;
    for (const Note& note : notes_) {
      if (is_ignored(note.kind) != ignored) continue;
      if (value.size() + note.name.size() + 2 > kHeaderBytesMax) {
        cut = true;
        break;
      }
      value += (value.empty() ? "" : ", ") + note.name;
    }
    if (cut) value += value.empty() ? "..." : ", ...";
    if (!value.empty())
      out.emplace_back(ignored ? "X-Fourfold-Ignored" : "X-Fourfold-Changed", std::move(value));
  }
  return out;
}

std::string NoteLog::line(const Note& note, std::string_view route) {
  if (said_.size() >= kSaidMax) return {};
  // A number is another one each time.
  const Note key =
      is_number(note.kind) ? Note{note.kind, std::string(note.name, 0, note.name.find('='))} : note;
  if (!said_.insert(key).second) return {};
  const std::string_view last = said_.size() == kSaidMax ? "; further names are not written" : "";
  return fourfold::format("info server {} {}={} route={}; said once{}",
                          is_ignored(note.kind) ? "ignored" : "changed", label_of(note.kind), note.name,
                          route, last);
}

}  // namespace fourfold::server::api
