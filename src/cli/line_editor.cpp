// With libedit. Characters come to it through next_character(), which waits for the terminal and for Ctrl-C
// at the same time; what it draws goes to stderr, as every prompt does.
#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/kept_history.h"

namespace fourfold::cli {
namespace {

constexpr std::size_t kPasteCharactersMax = std::size_t{1} << 20;

// While a line is read the terminal is asked to send a paste between two marks.
constexpr const char* kPasteOn = "\033[?2004h";
constexpr const char* kPasteOff = "\033[?2004l";
constexpr const char* kPasteBegin = "\033[200~";
constexpr std::wstring_view kPasteEnd = L"\033[201~";

// The window has another size, or the program was stopped and goes on: the line is drawn anew. A signal may
// be handled by any thread, so it comes to the one that waits as something to read.
std::atomic<int> g_redraw{-1};
constexpr std::uint64_t kResized = 1, kWentOn = std::uint64_t{1} << 32;
void note_redraw(int signal) {
  const int before = errno;
  const std::uint64_t what = signal == SIGCONT ? kWentOn : kResized;
  [[maybe_unused]] const ssize_t ignored = ::write(g_redraw, &what, sizeof what);
  errno = before;
}

class RedrawSignals {
 public:
  RedrawSignals() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (descriptor_ < 0) fail(Code::io, "cannot watch the terminal's size: {}", std::strerror(errno));
    g_redraw = descriptor_;
    struct sigaction action {};
    action.sa_handler = note_redraw;
    ::sigaction(SIGWINCH, &action, &size_before_);
    ::sigaction(SIGCONT, &action, &go_on_before_);
  }
  ~RedrawSignals() {
    ::sigaction(SIGWINCH, &size_before_, nullptr);
    ::sigaction(SIGCONT, &go_on_before_, nullptr);
    g_redraw = -1;
    ::close(descriptor_);
  }
  RedrawSignals(const RedrawSignals&) = delete;
  RedrawSignals& operator=(const RedrawSignals&) = delete;

  int descriptor() const { return descriptor_; }
  // The sum of what came; 0: nothing did.
  std::uint64_t take() const {
    std::uint64_t sum = 0;
    return ::read(descriptor_, &sum, sizeof sum) > 0 ? sum : 0;
  }

 private:
  int descriptor_;
  struct sigaction size_before_ {
  }, go_on_before_{};
};

// A signal that ends the program leaves the terminal as it was before the line, not as the editor needs it.
constexpr int kEndings[] = {SIGTERM, SIGHUP, SIGQUIT, SIGABRT};
int g_terminal = -1;
termios g_settings;
void leave_terminal(int signal) {
  ::tcsetattr(g_terminal, TCSANOW, &g_settings);
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, kPasteOff, std::strlen(kPasteOff));
  std::signal(signal, SIG_DFL);
  ::raise(signal);  // once this handler has returned
}

class TerminalGuard {
 public:
  explicit TerminalGuard(int terminal) : guards_(::tcgetattr(terminal, &g_settings) == 0) {
    if (!guards_) return;
    g_terminal = terminal;
    struct sigaction action {};
    action.sa_handler = leave_terminal;
    for (std::size_t i = 0; i < std::size(kEndings); ++i) ::sigaction(kEndings[i], &action, &before_[i]);
  }
  ~TerminalGuard() {
    if (!guards_) return;
    for (std::size_t i = 0; i < std::size(kEndings); ++i) ::sigaction(kEndings[i], &before_[i], nullptr);
  }
  TerminalGuard(const TerminalGuard&) = delete;
  TerminalGuard& operator=(const TerminalGuard&) = delete;

 private:
  bool guards_;
  struct sigaction before_[std::size(kEndings)]{};
};

// libedit converts by the locale. Whatever the user's is, what goes to a model is UTF-8.
bool use_utf8() {
  for (const char* name : {"", "C.UTF-8"})
    if (::setlocale(LC_CTYPE, name) != nullptr && std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0)
      return true;
  return false;
}

class EditedLines final : public LineEditor {
 public:
  EditedLines(const LineEditorOptions& options, const InterruptWatch& watch)
      : input_(::dup(options.input)),
        prompt_(options.prompt),
        watch_(watch),
        history_(options.history_file),
        stream_(::fdopen(input_, "r")) {
    if (stream_ == nullptr) fail(Code::io, "cannot read the terminal: {}", std::strerror(errno));
    edit_ = ::el_init("fourfold", stream_, stderr, stderr);
    if (edit_ == nullptr) fail(Code::io, "libedit cannot use this terminal");
    ::el_set(edit_, EL_CLIENTDATA, this);
    ::el_set(edit_, EL_PROMPT, &EditedLines::prompt);
    ::el_set(edit_, EL_GETCFN, &EditedLines::next_character);
    ::el_set(edit_, EL_HIST, &::history, history_.get());
    bind_keys();
    ::el_source(edit_, nullptr);  // the user's ~/.editrc
  }
  ~EditedLines() override {
    ::el_end(edit_);
    std::fclose(stream_);
  }

  LineReader::Outcome read(std::string& line) override {
    const RedrawSignals signals;
    const TerminalGuard guard(input_);
    redraw_ = &signals;
    outcome_ = LineReader::Outcome::line;
    int count = 0;
    // libedit would show its prompt first, and leave keys that come at once to the terminal.
    ::el_set(edit_, EL_PREP_TERM, 1);
    std::fputs(kPasteOn, stderr);
    const char* text = ::el_gets(edit_, &count);
    std::fputs(kPasteOff, stderr);
    std::fflush(stderr);
    if (outcome_ == LineReader::Outcome::interrupted) return outcome_;
    if (text == nullptr || count <= 0) return LineReader::Outcome::end;
    line = text;
    if (line.ends_with('\n')) line.pop_back();
    return LineReader::Outcome::line;
  }
  void remember(const std::string& line) override { history_.add(line); }
  std::string notice() const { return history_.notice(); }

 private:
  static EditedLines& self(EditLine* edit) {
    void* it = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &it);
    return *static_cast<EditedLines*>(it);
  }
  static char* prompt(EditLine* edit) { return self(edit).prompt_.data(); }
  static int next_character(EditLine* edit, wchar_t* out) { return self(edit).next(*out); }

  void bind_keys() {
    ::el_set(edit_, EL_EDITOR, "emacs");
    ::el_set(edit_, EL_ADDFN, "fourfold-paste", "Insert what was pasted", &EditedLines::paste);
    ::el_set(edit_, EL_ADDFN, "fourfold-new-line", "Begin a line of the same message",
             &EditedLines::new_line);
    const auto bind = [this](const char* key, const char* function) {
      ::el_set(edit_, EL_BIND, key, function, nullptr);
    };
    bind(kPasteBegin, "fourfold-paste");
    bind("\033\r", "fourfold-new-line");  // Alt-Enter
    bind("\033\n", "fourfold-new-line");
    bind("^R", "em-inc-search-prev");
    bind("\033[1;5C", "em-next-word");  // Ctrl-Right, Ctrl-Left
    bind("\033[1;5D", "ed-prev-word");
    for (const char* home : {"\033[H", "\033OH", "\033[1~"}) bind(home, "ed-move-to-beg");
    for (const char* end : {"\033[F", "\033OF", "\033[4~"}) bind(end, "ed-move-to-end");
    bind("\033[3~", "ed-delete-next-char");
  }

  static unsigned char new_line(EditLine* edit, int) {
    return ::el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
  }

  // All lines at once, instead of a message each. Terminals send line ends as carriage returns.
  static unsigned char paste(EditLine* edit, int) {
    std::wstring text;
    wchar_t character = 0;
    bool cut = false;
    while (!text.ends_with(kPasteEnd)) {
      if (::el_wgetc(edit, &character) != 1) return CC_EOF;
      if (character == 0) continue;
      text += character == L'\r' ? L'\n' : character;
      // What is beyond the limit only passes through, so that the end is seen.
      if (text.size() > 2 * kPasteCharactersMax) {
        text.erase(kPasteCharactersMax, text.size() - kPasteCharactersMax - kPasteEnd.size());
        cut = true;
      }
    }
    text.resize(text.size() - kPasteEnd.size());
    if (cut || text.size() > kPasteCharactersMax) {
      text.resize(kPasteCharactersMax);
      std::fprintf(stderr, "\r\nfourfold: the paste was cut after %zu characters\r\n", kPasteCharactersMax);
      return ::el_winsertstr(edit, text.c_str()) == 0 ? CC_REDISPLAY : CC_ERROR;
    }
    return text.empty() || ::el_winsertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  // 1: a character; 0: the end; -1: an interrupt or an error.
  int next(wchar_t& out) {
    for (;;) {
      if (take(out)) return 1;
      if (watch_.interrupted()) {
        outcome_ = LineReader::Outcome::interrupted;
        return -1;
      }
      if (const std::uint64_t why = redraw_->take(); why != 0) redraw(why >= kWentOn);
      pollfd waits[3] = {
          {input_, POLLIN, 0}, {watch_.descriptor(), POLLIN, 0}, {redraw_->descriptor(), POLLIN, 0}};
      // Whatever else it was is looked for above.
      if (::poll(waits, 3, -1) < 0 || waits[0].revents == 0 || watch_.interrupted()) continue;
      char bytes[4096];
      const ssize_t count = ::read(input_, bytes, sizeof bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return static_cast<int>(count);
      bytes_.append(bytes, static_cast<std::size_t>(count));
    }
  }

  bool take(wchar_t& out) {
    if (bytes_.empty()) return false;
    const Utf8Step step = check_utf8_step(bytes_);
    if (step.state == Utf8State::incomplete) return false;
    constexpr wchar_t replacement = 0xFFFD;
    out = step.state == Utf8State::valid ? static_cast<wchar_t>(read_code_point(bytes_.data()).code)
                                         : replacement;
    bytes_.erase(0, step.bytes);
    return true;
  }

  // Whoever stopped the program has set the terminal to their own needs; libedit does not know, and sets it
  // again only after it has left it. Not for another size: what is typed in between would be the terminal's
  // to edit.
  void redraw(bool went_on) {
    if (went_on) ::el_set(edit_, EL_PREP_TERM, 0);
    if (went_on) ::el_set(edit_, EL_PREP_TERM, 1);
    ::el_resize(edit_);
    ::el_set(edit_, EL_REFRESH);
  }

  int input_;
  std::string prompt_;
  const InterruptWatch& watch_;
  KeptHistory history_;
  std::FILE* stream_;
  EditLine* edit_ = nullptr;
  const RedrawSignals* redraw_ = nullptr;  // while a line is read
  std::string bytes_;                      // read, and not yet taken
  LineReader::Outcome outcome_ = LineReader::Outcome::line;
};

}  // namespace

std::unique_ptr<LineEditor> make_line_editor(const LineEditorOptions& options, const InterruptWatch& watch,
                                             std::string& notice) {
  const char* terminal = std::getenv("TERM");
  if (terminal == nullptr || *terminal == '\0' || std::strcmp(terminal, "dumb") == 0) return nullptr;
  if (!use_utf8()) {
    notice = "this system has no UTF-8 locale, so lines cannot be edited and are not remembered";
    return nullptr;
  }
  auto editor = std::make_unique<EditedLines>(options, watch);
  notice = editor->notice();
  return editor;
}

}  // namespace fourfold::cli
