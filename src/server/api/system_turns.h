// Turns in the order that chat templates take. Clients send several system turns at the head of a
// conversation (OpenCode, Cline) and some in its middle (Claude Code); most templates take one, at the head.
// Some refuse the user's words behind the user's, or behind results of tools.
#pragma once

#include "server/api/conversation.h"

namespace fourfold::server::api {

// Leading system turns become one, with an empty line between them. A later one stays where it is: as a
// system turn where the template takes it there, else as a turn of the user that says what it is. Then the
// user's turns that the template refuses where they are become words of the turn before them, the user's or
// a tool's.
std::vector<Turn> settle_turns(std::vector<Turn> turns, const text::ChatTemplate& chat_template);

// Claude Code begins its system prompt with a line for its maker's accounts that is another one in every
// request; with it no prompt would share its beginning with the one before.
std::string without_billing_line(std::string text);

}  // namespace fourfold::server::api
