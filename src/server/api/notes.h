// What a request asks and does not get while it is served all the same: unknown fields, tools of other
// kinds, images, more tokens than the context has left. One collector a request; whoever reads a part of it
// adds to it. Clients see it in two headers of the answer, the operator in the log and in /metrics. With
// --strict each of them ends the request.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fourfold::server::api {

enum class NoteKind {
  field,    // unknown
  tool,     // of a kind this server does not run
  item,     // of the conversation, left out
  content,  // something replaces it: a word for an image
  length,   // fewer tokens than asked for
  cut,      // tokens of the prompt, where the request asks for it
  schema    // a keyword or a format of a schema that has no effect
};
inline constexpr NoteKind kNoteKinds[] = {NoteKind::field,   NoteKind::tool,   NoteKind::item,
                                          NoteKind::content, NoteKind::length, NoteKind::cut,
                                          NoteKind::schema};
// For /metrics and the log.
std::string_view label_of(NoteKind kind);

struct Note {
  NoteKind kind;
  std::string name;  // "tools[].type=web_search": plain, so that it may stand in a header
  auto operator<=>(const Note&) const = default;
};

class Notes {
 public:
  explicit Notes(bool strict = false) : strict_(strict) {}

  // place: "tools[2].type"; what: the value where it is a word of a protocol or a number of ours, never a
  // text of the conversation. Refuses the request instead when the server is strict, unless it was asked for.
  void add(NoteKind kind, std::string_view place, std::string_view what = {});

  const std::vector<Note>& all() const { return notes_; }
  // For the answer's head: X-Fourfold-Ignored and X-Fourfold-Changed, where there is something to say.
  std::vector<std::pair<std::string, std::string>> headers() const;

 private:
  bool strict_;
  bool more_ = false;        // than are kept
  std::vector<Note> notes_;  // each once
};

// Says each note once, however many requests have it; a bounded number of them.
class NoteLog {
 public:
  // Empty for what was said before.
  std::string line(const Note& note, std::string_view route);

 private:
  std::set<Note> said_;
};

}  // namespace fourfold::server::api
