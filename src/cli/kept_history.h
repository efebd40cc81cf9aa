// What was typed, kept from one start to the next: libedit's history in a file of the user's own.
#pragma once

#include <histedit.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace fourfold::cli {

class KeptHistory {
 public:
  // With an empty path, or one that cannot be used, lines are kept for this start only.
  explicit KeptHistory(std::filesystem::path file);
  ~KeptHistory() { ::history_end(history_); }
  KeptHistory(const KeptHistory&) = delete;
  KeptHistory& operator=(const KeptHistory&) = delete;

  ::History* get() const { return history_; }
  // Other chats may have added theirs meanwhile; all of them are kept, the newest last. The newest 1,000
  // lines are; one of more than 16 KiB is not.
  void add(const std::string& line);
  // Why nothing is kept; empty: it is, or nobody asked for it.
  const std::string& notice() const { return notice_; }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, CloseFile>;

  File open();
  void enter(const std::string& line);

  std::filesystem::path file_;
  ::History* history_;
  std::string notice_;
};

}  // namespace fourfold::cli
