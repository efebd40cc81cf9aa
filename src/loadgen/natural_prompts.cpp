// Thirty-two tasks in the four kinds people use models for, written for this project. Answers to them can be
// long; what is easy to draft (JSON, code) and what is not (prose) are equally many.
#include <array>

#include "loadgen/prompts.h"

namespace fourfold::loadgen {
namespace {

constexpr std::array<NaturalPrompt, 32> kPrompts{{
    {"code",
     "Write a C++ function that merges two sorted singly linked lists without allocating memory, and "
     "explain each step."},
    {"prose",
     "Explain to a neighbour, in plain prose and without lists, why the sky is blue and the evening "
     "sky is red."},
    {"translation",
     "Translate into German: The harbour was empty that morning, except for a single boat whose "
     "owner had forgotten to take down its lantern."},
    {"json",
     "Make a JSON array of eight invented library books. Each has title, author, year, pages, and an "
     "array of two or three subjects."},
    {"code",
     "Write a Python generator that yields the prime numbers up to n with a segmented sieve, so that "
     "memory stays below a megabyte for n of a billion."},
    {"prose",
     "Write the opening page of a story about a lighthouse keeper who receives a letter that is "
     "addressed to somebody who has not been born yet."},
    {"translation",
     "Translate into French, keeping the polite tone: We are sorry that your order has not "
     "arrived. Our driver reports that the bridge was closed, and we will try again on Thursday."},
    {"json",
     "Describe a small weather station as one JSON object: its place, its five sensors with unit, range "
     "and last reading, and the last three alarms with time and cause."},
    {"code",
     "Here is a SQL table orders(id, customer, placed_on, total). Write a query that lists, for each "
     "month, the three customers with the highest sum, and explain the window function in it."},
    {"prose",
     "A friend is afraid of flying. Write him a letter that takes the fear seriously and still "
     "persuades him to come to the wedding by plane."},
    {"translation",
     "Translate into Spanish: If you have lived beside a river for long enough, you stop hearing "
     "it, and then one dry summer the silence wakes you up."},
    {"json",
     "Give a JSON configuration for a backup program: four folders, a schedule for each, how many copies "
     "are kept, excluded patterns, and where a report is sent when a run fails."},
    {"code",
     "Write a bash script that watches a folder, and for every new CSV file appends its rows to one "
     "file, skipping the header and any row that is already there. Comment on what can go wrong."},
    {"prose",
     "Compare the way a chess player and a gardener think about time. Write an essay of about four "
     "hundred words, without headings."},
    {"translation",
     "Translate into Italian, as it would stand on a museum wall: This loom was built in 1811 and "
     "worked for ninety years. The worn step on its left side is where six weavers rested a foot."},
    {"json",
     "Write a JSON schema for a train ticket with passenger, from, to, departure, class, price with "
     "currency, and optional seat and bicycle."},
    {"code",
     "Refactor this in your own words and code: a function of 200 lines reads a file, parses it, checks "
     "it, stores it and sends mail. Show how you would cut it in Go, with tests for each part."},
    {"prose", "Tell the history of an ordinary kitchen table through the four families that owned it."},
    {"translation",
     "Translate into Dutch: Please leave your shoes at the door, hang the wet coats over the bath, "
     "and come straight in. The soup is nearly ready and the cat has been asking for you."},
    {"json",
     "Turn this into JSON with one object a person: Ada, 36, designs bridges and keeps bees; Tomas, 51, "
     "teaches physics in Brno; Mei, 29, repairs violins and speaks four languages."},
    {"code",
     "Implement a least-recently-used cache in Rust with get and put in constant time, without unsafe "
     "code, and say what you give up by that."},
    {"prose",
     "Describe a thunderstorm in the mountains as seen by three people: a shepherd, a child in a car, "
     "and a radio operator."},
    {"translation",
     "Translate into Portuguese: The recipe says ten minutes, but my grandmother always said that "
     "dough cannot read a clock. Wait until it has doubled."},
    {"json",
     "List the moves of an invented board game as JSON: for each of ten moves the player, piece, from, "
     "to, what was taken if anything, and a comment of at most eight words."},
    {"code",
     "Write a JavaScript function that formats a duration in seconds as people say it, such as 2 hours "
     "and 5 minutes, in English and German, with unit tests."},
    {"prose",
     "Explain what an index of a database is to somebody who has only ever used a paper telephone book, "
     "and where the comparison breaks down."},
    {"translation",
     "Translate into Polish: Nobody in the village remembered who had planted the walnut tree, "
     "but everyone could say which branch was theirs."},
    {"json",
     "Produce a JSON log of one minute of a coffee machine: twelve events with time in milliseconds, "
     "temperature, pressure, and an error code where something is wrong."},
    {"code",
     "Given a list of intervals with start and end, write a Java method that returns the smallest number "
     "of rooms needed so that no two intervals in a room overlap. Prove that it is right."},
    {"prose",
     "Write a review of a restaurant where everything went wrong and the evening was nevertheless the "
     "best of the year."},
    {"translation",
     "Translate into Swedish, in simple words for a child: The moon does not shine by itself. It "
     "catches the light of the sun and throws a little of it down to us."},
    {"json",
     "Design the answer of a web service that finds walking routes: JSON with three routes, each with "
     "length, climb, duration, a list of way points with names, and warnings."},
}};

}  // namespace

std::span<const NaturalPrompt> natural_prompts() { return kPrompts; }

}  // namespace fourfold::loadgen
