#include "text/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"
#include "text/unicode_tables.h"

namespace fourfold::text {

namespace {

bool is_space_at(std::string_view text, std::size_t at) {
  return (char_classes(read_code_point(text.data() + at).code) & kSpace) != 0;
}

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space_at(text, at)) {
    at += static_cast<std::size_t>(read_code_point(text.data() + at).bytes);
  }
  return at;
}

std::size_t skip_spaces_back(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least) {
    const std::size_t before = code_point_start(text, at - 1);
    if (!is_space_at(text, before)) break;
    at = before;
  }
  return at;
}

}  // namespace

bool SpecialPlaces::contain(std::size_t begin, std::size_t end) const {
  if (everywhere_) return true;
  const auto found = std::ranges::upper_bound(runs_, begin, {}, &Run::end);
  return found != runs_.end() && found->begin <= begin && end <= found->end;
}

SpecialPlaces SpecialPlaces::part(std::size_t begin, std::size_t end) const {
  return everywhere_ ? *this : within(runs_within(runs_, begin, end));
}

SpecialPlaces SpecialPlaces::rewritten(const std::vector<Rewrite>& rewrites) const {
  if (everywhere_) return *this;
  std::vector<Run> out;
  const auto add = [&out](std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    if (!out.empty() && out.back().end == begin) {
      out.back().end = end;
    } else {
      out.push_back({begin, end});
    }
  };
  std::size_t from = 0, to = 0;  // behind the last rewrite, before and after
  std::size_t next = 0;
  const auto copy_until = [&](std::size_t end) {
    for (; next < runs_.size() && runs_[next].begin < end; ++next) {
      add(std::max(runs_[next].begin, from) - from + to, std::min(runs_[next].end, end) - from + to);
      if (runs_[next].end > end) break;
    }
  };
  for (const Rewrite& rewrite : rewrites) {
    copy_until(rewrite.from_begin);
    if (contain(rewrite.from_begin, rewrite.from_end)) add(rewrite.to_begin, rewrite.to_end);
    from = rewrite.from_end;
    to = rewrite.to_end;
    while (next < runs_.size() && runs_[next].end <= from) ++next;
  }
  copy_until(static_cast<std::size_t>(-1));
  return within(std::move(out));
}

void AddedTokenFinder::add(std::string_view content, int token_index) {
  check(!content.empty(), "an added token has text");
  starts_[static_cast<unsigned char>(content[0])] = true;
  std::int32_t node = 0;
  for (const char byte : content) {
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_[static_cast<std::size_t>(node)].next.emplace_back(byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  nodes_[static_cast<std::size_t>(node)].token_index = token_index;
}

std::int32_t AddedTokenFinder::child(std::int32_t node, char byte) const {
  for (const auto& [label, next] : nodes_[static_cast<std::size_t>(node)].next) {
    if (label == byte) return next;
  }
  return -1;
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, std::size_t from,
                                               const std::vector<AddedToken>& tokens,
                                               const SpecialPlaces& allowed) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    Match longest{begin, begin, -1};
    std::int32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      node = child(node, text[at]);
      if (node < 0) break;
      const int token_index = nodes_[static_cast<std::size_t>(node)].token_index;
      if (token_index < 0) continue;
      const bool special = tokens[static_cast<std::size_t>(token_index)].special;
      if (!special || allowed.contain(begin, at + 1)) longest = {begin, at + 1, token_index};
    }
    if (longest.token_index >= 0) return longest;
  }
  return {text.size(), text.size(), -1};
}

std::vector<TextSpan> split_at_added_tokens(std::string_view text, const AddedTokenFinder& finder,
                                            const std::vector<AddedToken>& tokens,
                                            const SpecialPlaces& special) {
  std::vector<TextSpan> spans;
  std::size_t done = 0;
  for (std::size_t from = 0; !finder.empty();) {
    const auto match = finder.find(text, from, tokens, special);
    if (match.token_index < 0) break;
    from = match.end;
    const AddedToken& token = tokens[static_cast<std::size_t>(match.token_index)];
    const std::size_t begin = token.strip_left ? skip_spaces_back(text, match.begin, done) : match.begin;
    const std::size_t end = token.strip_right ? skip_spaces(text, match.end) : match.end;
    if (begin > done) spans.push_back({done, begin});
    // A token whose white space swallowed this one's neighbours may end behind the place the search goes on
    // from.
    spans.push_back({std::max(begin, done), end, match.token_index});
    done = end;
  }
  if (done < text.size()) spans.push_back({done, text.size()});
  return spans;
}

}  // namespace fourfold::text
