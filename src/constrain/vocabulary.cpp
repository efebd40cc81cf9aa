// The trie of a vocabulary.
#include "constrain/vocabulary.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/json_escape.h"
#include "base/utf8.h"

namespace fourfold::constrain {

Vocabulary::Vocabulary(const text::Tokenizer& tokenizer, std::span<const TokenId> stop_ids,
                       std::int64_t token_limit)
    : stop_ids_(stop_ids.begin(), stop_ids.end()), token_limit_(token_limit) {
  if (token_limit <= 0) fail(Code::invalid_request, "a vocabulary of {} tokens", token_limit);
  const auto count = static_cast<std::size_t>(std::min<std::int64_t>(token_limit, tokenizer.id_limit()));
  std::erase_if(stop_ids_, [&](TokenId id) { return id < 0 || id >= token_limit; });
  if (stop_ids_.empty())
    fail(Code::unsupported_model, "no stop id below {}: an answer with a form could not end", token_limit);
  bytes_.resize(count);
  ordinary_.assign(word_count(), 0);
  for (std::size_t i = 0; i < count; ++i) {
    const auto id = static_cast<TokenId>(i);
    if (is_stop(id)) continue;
    if (tokenizer.is_special(id)) {
      if (const std::string_view text = tokenizer.token_bytes(id); !text.empty()) {
        bytes_[i] = control_mark(text);
        tags_.emplace_back(bytes_[i], id);
      }
      continue;
    }
    bytes_[i] = tokenizer.token_bytes(id);
    if (!bytes_[i].empty()) ordinary_[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  for (std::size_t i = 0; i < count; ++i)
    if (!bytes_[i].empty() && tokenizer.added_token(bytes_[i]) == static_cast<TokenId>(i))
      tags_.emplace_back(bytes_[i], static_cast<TokenId>(i));
  build_trie();
}

void Vocabulary::build_trie() {
  std::vector<TokenId> order(bytes_.size());
  std::iota(order.begin(), order.end(), TokenId{0});
  std::erase_if(order, [&](TokenId id) {
    return bytes(id).empty() || bytes(id).find(kControlByte) != std::string_view::npos ||
           tag(bytes(id)) == id;
  });
  // Not stable_sort: libstdc++ 12's does not compile cleanly with clang 19.
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return std::pair(bytes(a), a) < std::pair(bytes(b), b); });
  tokens_ = std::move(order);

  nodes_.push_back({0, 0, 0, 0, 0});
  std::vector<std::uint32_t> path{0};
  std::string_view before;
  const auto close = [&](std::size_t depth) {  // nodes deeper than this have no more children
    for (; path.size() > depth + 1; path.pop_back())
      nodes_[path.back()].skip = static_cast<std::uint32_t>(nodes_.size());
  };
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view now = bytes(tokens_[i]).substr(0, std::numeric_limits<std::uint16_t>::max());
    const auto same = static_cast<std::size_t>(
        std::mismatch(before.begin(), before.end(), now.begin(), now.end()).first - before.begin());
    close(same);
    for (std::size_t at = same; at < now.size(); ++at) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint32_t>(i), static_cast<std::uint16_t>(at + 1),
                        static_cast<std::uint8_t>(now[at]), 0});
    }
    depth_max_ = std::max(depth_max_, static_cast<int>(now.size()));
    before = now;
  }
  close(0);
  nodes_[0].skip = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({0, static_cast<std::uint32_t>(tokens_.size()), 0, 0, 0});
  find_plain_text();

  std::vector<bool> alone(256, false);
  for (const std::string& text : bytes_)
    if (text.size() == 1) alone[static_cast<std::uint8_t>(text[0])] = true;
  for (int byte = 0; byte < 0xF5; ++byte)
    if (!alone[static_cast<std::size_t>(byte)] && byte != 0xC0 && byte != 0xC1)
      fail(Code::unsupported_model, "byte {} has no token of its own: an answer with a form could get stuck",
           byte);
}

void Vocabulary::find_plain_text() {
  constexpr std::uint8_t not_plain = 255;
  // From the front: is the text up to a node plain, and is it cut inside a character there?
  std::vector<Utf8State> state(nodes_.size(), Utf8State::invalid);
  std::string path;
  for (std::uint32_t at = 0; at + 1 < nodes_.size(); ++at) {
    const Node& node = nodes_[at];
    path.resize(node.depth);
    if (at > 0) path.back() = static_cast<char>(node.byte);
    const bool is_plain = at == 0 || !needs_json_escape(node.byte);
    if (!is_plain) continue;
    std::size_t start = path.size();  // of the last character
    while (start > 0 && path.size() - start < 4 && is_continuation(path[start - 1])) --start;
    if (start > 0 && (node.byte & 0x80)) --start;
    state[at] = Utf8State::valid;
    if (start == path.size()) continue;
    const Utf8Step step = check_utf8_step(std::string_view(path).substr(start));
    state[at] = step.bytes == path.size() - start ? step.state : Utf8State::invalid;
  }
  // From the back: a node's children come after it.
  std::vector<std::uint8_t> characters(nodes_.size(), 0);
  for (std::uint32_t at = node_count(); at-- > 0;) {
    std::uint8_t most = 0;
    for (std::uint32_t child = at + 1; child < nodes_[at].skip; child = nodes_[child].skip) {
      const bool begins = state[at] == Utf8State::valid;
      const bool holds = state[child] != Utf8State::invalid && characters[child] != not_plain;
      const int count = holds ? characters[child] + (begins ? 1 : 0) : not_plain;
      most = static_cast<std::uint8_t>(std::max<int>(most, std::min<int>(count, not_plain)));
    }
    characters[at] = most;
    nodes_[at].plain_characters = state[at] == Utf8State::valid ? most : not_plain;
  }
}

std::string_view Vocabulary::bytes(TokenId token) const {
  const auto index = static_cast<std::size_t>(token);
  return token >= 0 && index < bytes_.size() ? std::string_view(bytes_[index]) : std::string_view();
}

bool Vocabulary::is_stop(TokenId token) const {
  return std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end();
}

std::optional<TokenId> Vocabulary::tag(std::string_view text) const {
  for (const auto& [content, id] : tags_)
    if (content == text) return id;
  return std::nullopt;
}

}  // namespace fourfold::constrain
