// A tokenizer's tokens as a trie of their bytes, made once for all guides.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace fourfold::constrain {

using text::TokenId;

// How a form writes a control token: behind a byte that no text has, so that letters do not make one.
inline constexpr char kControlByte = '\xFE';
inline std::string control_mark(std::string_view token) { return kControlByte + std::string(token); }

class Vocabulary {
 public:
  // Ids at or above token_limit are never allowed (a model's vocabulary is padded), nor are special tokens
  // other than the stop ids or added tokens a form does not name (Grammar::tags). Throws unsupported_model
  // when a byte that UTF-8 needs has no token of its own: an answer could get stuck.
  Vocabulary(const text::Tokenizer& tokenizer, std::span<const TokenId> stop_ids, std::int64_t token_limit);

  // Nodes stand in the order of a walk that visits a node before its children; node 0 is the empty text.
  struct Node {
    std::uint32_t skip;         // the node after this one's subtree
    std::uint32_t token_begin;  // into tokens(); the node's own are those up to the next node's
    std::uint16_t depth;
    std::uint8_t byte;
    // What follows this node in all its tokens is plain text, begins with a character and has at most so
    // many: valid UTF-8 without ", \ and control characters. 255: not so, or more.
    std::uint8_t plain_characters;
  };
  std::uint32_t node_count() const { return static_cast<std::uint32_t>(nodes_.size() - 1); }
  const Node& node(std::uint32_t index) const { return nodes_[index]; }
  // Of the nodes from `first` to before `last`.
  std::span<const TokenId> tokens(std::uint32_t first, std::uint32_t last) const {
    return std::span(tokens_).subspan(nodes_[first].token_begin,
                                      nodes_[last].token_begin - nodes_[first].token_begin);
  }
  std::span<const TokenId> stop_ids() const { return stop_ids_; }
  std::int64_t token_limit() const { return token_limit_; }
  std::size_t word_count() const { return static_cast<std::size_t>(token_limit_ + 63) / 64; }
  int depth_max() const { return depth_max_; }
  // What a token writes, for a special one its control_mark; empty for those without text (stop ids, ids
  // beyond the limit).
  std::string_view bytes(TokenId token) const;
  bool is_stop(TokenId token) const;
  // All tokens with text, as a mask.
  std::span<const std::uint64_t> ordinary() const { return ordinary_; }
  // Added tokens, which stand outside the trie, by their text; special ones by their control_mark.
  std::optional<TokenId> tag(std::string_view text) const;

 private:
  void build_trie();
  void find_plain_text();

  std::vector<std::string> bytes_;  // by id
  std::vector<std::uint64_t> ordinary_;
  std::vector<std::pair<std::string, TokenId>> tags_;
  std::vector<TokenId> stop_ids_;
  std::int64_t token_limit_;
  std::vector<Node> nodes_;  // and one behind the last
  std::vector<TokenId> tokens_;
  int depth_max_ = 0;
};

}  // namespace fourfold::constrain
