// What requests ask and do not get: said in headers, in the log and in /metrics, and never by ending them.
#include "server/api/notes.h"

#include "tests/server/support.h"

namespace fourfold::server {
namespace {

using api::Note;
using api::NoteKind;
using api::Notes;

using Headers = std::vector<std::pair<std::string, std::string>>;

TEST(Notes, NothingToSayIsNoHeader) { EXPECT_TRUE(Notes().headers().empty()); }

TEST(Notes, OneNameForAllIndices) {
  Notes notes;
  for (int i = 0; i < 100; ++i) notes.add(NoteKind::field, fourfold::format("messages[{}].colour", i));
  notes.add(NoteKind::tool, "tools[3].type", "web_search");
  notes.add(NoteKind::length, "max_tokens", "412");
  EXPECT_EQ(notes.headers(), (Headers{{"X-Fourfold-Ignored", "messages[].colour, tools[].type=web_search"},
                                      {"X-Fourfold-Changed", "max_tokens=412"}}));
}

TEST(Notes, NamesCannotForgeAHeader) {
  Notes notes;
  notes.add(NoteKind::field, "a\r\nSet-Cookie: x=1, \"b\"\xC3\xA9[1]\n2");
  notes.add(NoteKind::field, std::string(5000, 'q'));
  const Headers headers = notes.headers();
  ASSERT_EQ(headers.size(), 1u);
  EXPECT_EQ(headers[0].second, "a??Set-Cookie??x?1???b???[]?2, " + std::string(61, 'q') + "...");
}

TEST(Notes, HeaderAndMemoryAreBounded) {
  Notes notes;
  for (int i = 0; i < 100'000; ++i)
    notes.add(NoteKind::field, fourfold::format("field_{}_{}", i, std::string(60, 'x')));
  EXPECT_EQ(notes.all().size(), 32u);
  const std::string value = notes.headers()[0].second;
  EXPECT_LE(value.size(), 520u);
  EXPECT_TRUE(value.ends_with(", ...")) << value;
}

TEST(Notes, StrictRefusesEachOfThem) {
  for (const NoteKind kind : api::kNoteKinds) {
    Notes notes(true);
    if (kind == NoteKind::cut) {
      notes.add(kind, "place", "what");  // asked for, and done
      EXPECT_EQ(notes.all().size(), 1u);
      continue;
    }
    EXPECT_THROW(notes.add(kind, "place", "what"), Error) << api::label_of(kind);
  }
}

TEST(Notes, TheLogSaysEachNameOnce) {
  api::NoteLog log;
  const std::string line = log.line({NoteKind::field, "colour"}, "/v1/messages");
  EXPECT_EQ(line, "info server ignored field=colour route=/v1/messages; said once");
  EXPECT_EQ(log.line({NoteKind::field, "colour"}, "/v1/responses"), "");
  EXPECT_NE(log.line({NoteKind::length, "max_tokens=5"}, "/v1/messages"), "");
  EXPECT_EQ(log.line({NoteKind::length, "max_tokens=6"}, "/v1/messages"), "");
  std::size_t lines = 2;
  std::string last;
  for (int i = 0; i < 1000; ++i) {
    const std::string next = log.line({NoteKind::field, fourfold::format("f{}", i)}, "/v1/messages");
    if (next.empty()) continue;
    last = next;
    ++lines;
  }
  EXPECT_EQ(lines, 256u);
  EXPECT_TRUE(last.ends_with("further names are not written")) << last;
}

}  // namespace
}  // namespace fourfold::server
