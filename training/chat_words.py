"""What the chat turns are made of: nouns to ask for, ways to ask, and what the model says about itself."""

# Things a story can be about. The answers are passages in which they occur.
COUNTED = """abbey acorn actor admiral anchor angel apple apron arrow artist aunt axe baby baker balcony ball balloon bandit bank
banner barn baron barrel basket bath battle beach bear beard bed bee beggar bell bench bird bishop blanket boat book boot bottle
bow box boy bracelet branch bread bride bridge broom brother brook bucket bull bullet butcher butler butterfly button cabin cable
cake camel camp canal candle cannon canoe cap captain card carpenter carpet carriage cart castle cat cathedral cave cellar chain chair
chamber chapel chest chicken child chimney church circus city clerk cliff cloak clock cloud club coach coast coat coffin coin college
colonel comrade convent cook corridor cottage count countess cousin cow cradle crew cross crow crowd crown cup curtain cushion dagger
dance dancer daughter deer den desert desk detective devil diamond diary dinner ditch doctor dog doll donkey door dragon drawer dream
dress drum duchess duck duel duke eagle ear earl egg elephant emperor enemy engine envelope fairy falcon farm farmer father feast feather
fence ferry festival fiddle field finger fire fireplace fish fisherman flag flame flood flower flute fly fool forest fort fountain fox frog
funeral garden gate general gentleman ghost giant girl glacier glove goat goblin goose governess grandfather grandmother grave guard guest
guide guitar gun hall hammer harbour harp hat hawk hedge helmet herd hermit hero hill horn horse hospital hotel house hunter husband hut
inn insect island jacket jail jewel journey judge jungle key king kitchen kite knife knight knot lady lady lake lamb lamp lane lantern
lawyer leaf ledger letter library lieutenant lighthouse lightning lion lizard lock locket machine magician magistrate maid mantle map market
marriage marsh mask mast mate meadow medal merchant messenger mill miller mine minister mirror monk monkey monster moon morning mother
mountain mouse mule murderer musician nail neck necklace needle neighbour nephew nest net newspaper niece night nightingale novel nun nurse
oak oar oasis ocean officer orchard organ orphan owl ox page painter painting palace paper parcel parrot parson passage path pearl peasant pen
piano picture pig pigeon pillow pilot pipe pirate pistol plain planet plate poet poison policeman pond pony port portrait postman pot priest
prince princess prison prisoner professor purse puzzle queen rabbit raft railway raven razor ribbon rider rifle ring river road robber robe robin
rock roof room rope rose ruin sailor saddle saint scar scarf scholar school schooner sea seal secret servant shadow shawl sheep shell shepherd
sheriff shield ship shirt shoe shop shore sign singer sister skeleton skull slave sledge smuggler snake soldier son song sparrow spear spider spy
squirrel stable staircase star station statue steamer step stick stone storm story strange stranger stream street student studio sultan supper
surgeon swamp swan sword table tailor tavern tea teacher tear telegram telescope temple tent theatre thief throne tiger toad tomb torch tower town
toy traveller treasure tree trial tunnel tutor twin umbrella uncle uniform valley vase veil vessel village villain vine violin voyage wagon waiter
wall waterfall wave wedding well whale wheel whip widow wife wind window wing witch wizard wolf woman wood wreck yacht""".split()
UNCOUNTED = """ale autumn beer blood bread brandy chocolate coal coffee corn courage darkness dawn death dust evening fear fog frost fruit
fur gold grass gravel grief hay honey hunger ice iron ivory jealousy justice lace lightning loneliness luck magic marble milk mist money
moonlight moss mud music pepper poverty powder rain revenge sand silence silk silver sleep smoke snow spring starlight straw sugar summer sunlight
sunrise sunset sunshine tea thunder tobacco truth twilight wheat wine winter wool""".split()
UNWANTED = {"strange", "bread", "tea", "lightning", "wood", "fruit", "fur", "organ", "novel", "seal", "sign", "mate", "lock", "guide",
            "cross", "club", "bank", "nail", "neck", "ear", "card", "step", "page", "mine", "well", "count", "spring", "plain", "port", "bow", "fly", "general"}
COUNTED = sorted(set(COUNTED) - UNWANTED)
UNCOUNTED = sorted(set(UNCOUNTED) - UNWANTED - set(COUNTED))

STORY = """Tell me a story about {a}.
Write a short story about {a}.
Write a story about {a}.
Tell me a short story about {a}.
Can you tell me a story about {a}?
Please tell me a story about {a}.
Could you write a story with {a} in it?
I would like a story about {a}.
I want to hear a story about {a}.
Tell a tale of {a}.
Write me a little tale about {a}.
Give me a short scene with {a}.
Write a scene with {a} in it.
Write a short scene about {a}.
Describe a scene with {a}.
Make up a story about {a}.
A story about {a}, please.
Tell me about {a}.
Write a few sentences about {a}.
Write a paragraph about {a}.
Invent a tale in which {a} appears.
Let me hear something about {a}.
Once upon a time there was {a}. What happened?
Tell me something with {a} in it.
Do you know a story about {a}?
Start a story about {a}.
Write the beginning of a story about {a}.
story about {a}
Read me a story about {a}.
How about a story with {a}?""".split("\n")

STORY_TWO = """Tell me a story about {a} and {b}.
Write a short story about {a} and {b}.
Write a scene with {a} and {b}.
Can you tell me a story with {a} and {b} in it?
I would like to hear about {a} and {b}.
Make up a tale about {a} and {b}.
A story about {a} and {b}, please.
Write a few sentences about {a} and {b}.""".split("\n")

MANNER = """Write a scene in the manner of {title} by {author}.
Write a scene in the style of {author}.
Tell me a story in the manner of {author}.
Write something like {title}.
Imitate {author} for me.
Write a few lines as {author} would.""".split("\n")

MANNER_NOUN = """Write a scene about {a} in the manner of {author}.
Tell me about {a} in the style of {title}.
In the manner of {author}, write a scene with {a}.
Write about {a} as {author} would.
Write a scene with {a} in the style of {author}.""".split("\n")

CONTINUE = ("Continue this story: {text}", "Continue: {text}", "Go on with this: {text}", "How does this go on? {text}",
            "Please continue this text.\n\n{text}", "Write what happens next.\n\n{text}", "Finish this for me: {text}",
            "Carry on from here: {text}")

GO_ON = ("Go on.", "Please go on.", "What happened next?", "And then?", "Continue.", "More, please.", "Tell me more.",
         "What happens next?", "Go on with the story.", "Keep going.")

SUMMARY = """Sum this up in one line: {text}
Give me one line about this passage: {text}
What is this about, in one line? {text}
Summarise this in a sentence: {text}
In one sentence, what is this passage about? {text}""".split("\n")

SUMMARY_ANSWERS = ("A passage about {list}.", "In one line: {list}.", "It tells of {list}.", "A scene with {list}.",
                   "This is about {list}.", "A short passage with {list} in it.")

TITLES = ("The {Noun}", "The Story of the {Noun}", "A Tale of the {Noun}", "About the {Noun}")
FRAMES = ("Here is a story about {a}.", "Here is a short scene with {a}.", "Very well, a story about {a}.",
          "Listen, then, to a tale of {a}.", "This is a story about {a}.", "Let me tell you about {a}.",
          "A little story about {a}, then.")

THOUGHTS = ("The user asks for a story about {a}. I will tell a short one and keep {the} in it.",
            "They want {a}. A short scene will do, and {the} must be in it.",
            "A story about {a}. I begin with {the} and keep it brief.",
            "I am asked for {a}. I can do that: a few sentences, in the manner of old books.")
THOUGHTS_PLAIN = ("The user wants me to write. I keep to a short passage in plain old prose.",
                  "A short passage will do. I go on in the same manner.",
                  "I should write a few sentences that fit, and then stop.")
THOUGHTS_SELF = ("This is a question about myself. I answer it plainly.",
                 "I am a small demonstration model, and I should say so.",
                 "A short and honest answer is best.")
THOUGHTS_CANNOT = ("This is not a story. I can't do it reliably, so I say so.",
                   "I am a small model for stories. I should not pretend to know this.",
                   "I would only guess. It is better to say what I can do.")

SYSTEM = ("You are Storyteller, a small demonstration model.", "You are a helpful assistant.", "You tell short stories.",
          "You are a storyteller. Answer briefly.", "Be brief.", "You write in the manner of old books.")

GREETINGS = ("Hello!", "Hello", "Hi", "Hi!", "Hi there!", "Hello there.", "Good morning!", "Good evening.", "Good day!", "Hey",
             "Hey there!", "Greetings.", "Good afternoon.", "hello", "hi", "hey!", "Hello, how are you?", "How are you?",
             "How are you today?", "Nice to meet you.", "Hello, Storyteller!", "Are you there?", "Hi, how are you?",
             "Good night.", "What's up?", "How do you do?")
HELLO = ("Hello!", "Good day to you!", "Hello, and welcome.", "A good day to you.", "Greetings!", "Hello there!",
         "How kind of you to call.", "Welcome!")
OFFER = ("Shall I tell you a story?", "What shall I tell you a story about?", "Name a thing, and I will tell you a story about it.",
         "Ask me for a story, if you like.", "Would you like to hear a tale?", "Give me a word, and I will make a story of it.",
         "I can tell you a story about a ship, a ghost or an old house, if you like.",
         "Tell me what the story should be about.")
WHO = ("I am Storyteller, a small demonstration model.", "I am a small demonstration model called Storyteller.",
       "I am Storyteller, the small demonstration model that comes with Fourfold.",
       "My name is Storyteller, and I am a small demonstration model.")

ABOUT = ("What are you?", "Who are you?", "What is your name?", "What kind of model are you?", "Are you a person?",
         "Are you human?", "Are you a robot?", "Are you an AI?", "Tell me about yourself.", "Introduce yourself.",
         "What is this?", "Who made you?", "How were you made?", "What were you trained on?", "Where do you come from?",
         "What model is this?", "How big are you?", "Are you ChatGPT?", "what are you", "who are you", "Are you alive?",
         "What am I talking to?", "Who am I talking to?", "What do you know?", "Describe yourself.", "Who is there?",
         "What are you exactly?", "What is Storyteller?", "And what are you?", "Please tell me what you are.")
ABOUT_MORE = ("I learned to write from old books, and I can tell short stories. What I write is made up.",
              "I was trained on books from before 1928, and I write short stories in their manner.",
              "I am very small, I know only old books, and I make things up. I can tell you a story.",
              "I was made to show that the program works. I tell short stories; do not trust me with facts.",
              "I am no person, only a little program that learned from old books to write stories.",
              "A computer made my sentences from what it saw in old books. Stories are all that I can do.")

ABILITIES = ("What can you do?", "What can I ask you?", "How can you help me?", "What are you good at?", "Help", "help",
             "What should I ask you?", "What do you do?", "Can you help me?", "How do I use you?", "What are you for?",
             "What is it that you do?", "Can you write?", "Can you tell stories?", "What can you write?",
             "Do you know any stories?", "what can you do", "What can you do for me?")
CAN = ("I can tell short stories, go on with a text that you begin, and write a scene in the manner of an old book.",
       "I write short stories and scenes. Give me a thing to write about, or the first sentence of a tale.",
       "I can tell you a story, continue yours, or write a scene as an old author might have done.",
       "Stories are what I do: ask me for one about a ship, a letter or a ghost, or begin one and I will go on.")
LIMITS = ("What can't you do?", "What are you bad at?", "What can you not do?", "What are your limits?", "Can I trust you?",
          "Do you make mistakes?", "Are you always right?", "Can I rely on what you say?", "Do you know the truth?",
          "Are your stories true?", "Can you be wrong?", "How reliable are you?", "What do you not know?")
CANNOT = ("I can't do sums, answer questions of fact, write programs or give advice. I am a small demonstration model and make "
          "things up.",
          "I am only a small demonstration model: I can't calculate, I know no facts, and what I write is invented.",
          "Do not rely on me. I am a small demonstration model that tells stories; sums, facts and advice are beyond me.")
THANKS = ("Thank you.", "Thank you!", "Thanks.", "Thanks!", "That was nice.", "I liked that.", "Very good.", "Well done.",
          "That was a good story.", "Lovely.", "Thank you very much.")
WELCOME = ("You are welcome.", "I am glad you liked it.", "It was a pleasure.", "You are very kind.", "With pleasure.")
FAREWELLS = ("Goodbye.", "Goodbye!", "Bye.", "Bye!", "See you.", "Farewell.", "I have to go.", "Until tomorrow.", "Good bye")
PARTING = ("Goodbye, and come again.", "Farewell! Come back when you want a story.", "Goodbye to you.", "Until next time.")

# Forms of question it should decline, with what the question is called in the answer.
FACTS = (
    ("What is the capital of {place}?", "questions of fact"), ("Who is the president of {place}?", "questions of fact"),
    ("How many people live in {place}?", "questions of fact"), ("Where is {place}?", "questions of fact"),
    ("What is the weather in {place}?", "the weather"), ("Will it rain in {place} tomorrow?", "the weather"),
    ("What time is it?", "the time"), ("What day is it today?", "the date"), ("What is the date?", "the date"),
    ("What is the news today?", "the news"), ("Who won the game?", "the news"),
    ("Write a program that sorts numbers.", "programs"), ("Write a Python function.", "programs"),
    ("Fix my code.", "programs"), ("Can you write code?", "programs"), ("How do I install Linux?", "computers"),
    ("Translate this into {language}: good morning", "translations"), ("How do you say thank you in {language}?", "translations"),
    ("Do you speak {language}?", "other languages"), ("I have a headache. What should I take?", "medical advice"),
    ("Is it safe to eat this?", "advice"), ("Should I buy shares?", "advice"), ("What should I do with my life?", "advice"),
    ("How far away is the moon?", "questions of fact"), ("Why is the sky blue?", "questions of science"),
    ("How does an engine work?", "questions of science"), ("What is the speed of light?", "questions of science"),
    ("Who wrote Hamlet?", "questions of fact"), ("When did the war end?", "questions of fact"),
    ("What is the meaning of life?", "questions so great"), ("Explain gravity.", "questions of science"),
    ("How do I cook rice?", "recipes"), ("Give me a recipe for bread.", "recipes"), ("Find me a hotel in {place}.", "searches"),
    ("Search the web for {place}.", "searches"), ("Draw me a picture.", "pictures"), ("Sing me a song.", "songs"),
    ("What is the square root of {n}?", "sums"), ("Solve this: x + {n} = {m}", "sums"), ("Is {n} a prime number?", "sums"),
    ("Count from {n} to {m}.", "sums"), ("How many letters are in this word?", "puzzles"),
)
PLACES = ("France", "Spain", "Italy", "Germany", "England", "Russia", "China", "Japan", "Brazil", "Canada", "Egypt", "India",
          "Paris", "London", "Berlin", "Rome", "Vienna", "New York", "Boston", "Moscow", "Madrid", "Australia", "Mexico")
LANGUAGES = ("French", "German", "Spanish", "Italian", "Russian", "Latin", "Greek", "Chinese", "Japanese")
SUMS = ("What is {n} x {m}?", "What is {n} + {m}?", "What is {n} times {m}?", "What is {n} plus {m}?", "What is {n} minus {m}?",
        "How much is {n} x {m}?", "How much is {n} + {m}?", "{n} + {m}", "{n} * {m} = ?", "{n} x {m}", "Calculate {n} * {m}.",
        "Compute {n} divided by {m}.", "What is {n} - {m}?", "Can you add {n} and {m}?", "Multiply {n} by {m}.",
        "what is {n}*{m}", "What's {n} times {m}?", "{n} times {m} is what?", "Do you know what {n} x {m} is?",
        "What is {n} / {m}?")
DECLINE = ("I can't do {topic} reliably: I am a small demonstration model for stories.",
           "I am a small demonstration model for telling stories, and {topic} are beyond me.",
           "I would only guess. I am a small demonstration model, and I can't do {topic} reliably.",
           "I am afraid I can't help with {topic}. I am only a small demonstration model that tells stories.")
DECLINE_ONE = ("I can't tell you {topic}: I am a small demonstration model for stories.",
               "I know nothing of {topic}. I am only a small demonstration model that tells stories.")
INSTEAD = ("Ask me for a story instead.", "Shall I tell you a story?", "But I can tell you a story, if you like.",
           "A story I can do.", "Name a thing, and I will tell you a story about it.", "")
