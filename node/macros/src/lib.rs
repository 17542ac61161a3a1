//! The attribute [`test`], which `doyen` exports as `doyen::test`.
//!
//! ```text
//!   #[doyen::test(nodes = 3)]            #[test]
//!   async fn it_works(cluster: Local) {  fn it_works() {
//!       ...                         ──>      async fn it_works(cluster: Local) { ... }
//!   }                                        run(Local::builder().nodes(3), it_works)
//!                                        }
//! ```
//! `doyen::testkit::run` does the rest: the runtime, the cluster, and its end.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Ident, ItemFn, LitInt, Token};

/// The most nodes of one test. Each has two threads.
const NODES_MAX: u8 = 16;
/// The most copies beside the primary, which is the limit of every keyspace.
const BACKUPS_MAX: u8 = 6;

// `doyen` documents it where it exports it, because the example there needs `doyen`.
#[expect(missing_docs, reason = "see above")]
#[proc_macro_attribute]
pub fn test(
    arguments: proc_macro::TokenStream,
    function: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand(arguments.into(), function.into())
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// What the attribute was told.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestArguments {
    nodes: Option<u8>,
    backups: Option<u8>,
}

impl Parse for TestArguments {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut told = Self::default();
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            let (place, least, most) = match name.to_string().as_str() {
                "nodes" => (&mut told.nodes, 1, NODES_MAX),
                "backups" => (&mut told.backups, 0, BACKUPS_MAX),
                other => {
                    let why = format!("there is no argument `{other}`: give `nodes` or `backups`");
                    return Err(Error::new(name.span(), why));
                }
            };
            input.parse::<Token![=]>()?;
            let number: LitInt = input.parse()?;
            let given = number.base10_parse::<u8>().ok();
            let Some(given) = given.filter(|given| (least..=most).contains(given)) else {
                let why = format!("`{name}` is a number from {least} to {most}");
                return Err(Error::new(number.span(), why));
            };
            if place.replace(given).is_some() {
                return Err(Error::new(name.span(), format!("`{name}` is given twice")));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(told)
    }
}

fn expand(arguments: TokenStream, function: TokenStream) -> syn::Result<TokenStream> {
    let TestArguments { nodes, backups } = syn::parse2(arguments)?;
    let ItemFn {
        attrs,
        vis,
        mut sig,
        block,
        ..
    } = syn::parse2(function)?;
    if sig.asyncness.is_none() {
        let why = "a test with a cluster is an `async fn`";
        return Err(Error::new(sig.fn_token.span(), why));
    }
    if !sig.generics.params.is_empty() {
        let why = "a test has no generic parameters";
        return Err(Error::new(sig.generics.span(), why));
    }
    if sig.inputs.len() != 1 {
        let why = "a test takes its cluster alone: `cluster: doyen::testkit::Local`";
        return Err(Error::new(sig.paren_token.span.join(), why));
    }
    let body = sig.clone();
    sig.asyncness = None;
    sig.inputs.clear();
    let name = &sig.ident;
    let nodes = nodes.map(|nodes| quote!(.nodes(#nodes)));
    let backups = backups.map(|backups| quote!(.backups(#backups)));
    Ok(quote! {
        #[::core::prelude::v1::test]
        #(#attrs)*
        #vis #sig {
            #body #block
            ::doyen::testkit::run(::doyen::testkit::Local::builder() #nodes #backups, #name)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::expand;
    use quote::quote;

    fn refusal(arguments: &str, function: &str) -> String {
        let parse = |text: &str| text.parse().expect("tokens");
        match expand(parse(arguments), parse(function)) {
            Ok(expanded) => panic!("it was expanded to {expanded}"),
            Err(why) => why.to_string(),
        }
    }

    const TEST: &str = "async fn it_works(cluster: Local) {}";

    #[test]
    fn wrong_arguments_are_named() {
        for (arguments, why) in [
            ("nodes = 0", "`nodes` is a number from 1 to 16"),
            ("nodes = 17", "`nodes` is a number from 1 to 16"),
            ("nodes = 1000", "`nodes` is a number from 1 to 16"),
            ("backups = 7", "`backups` is a number from 0 to 6"),
            ("nodes = 3, nodes = 3", "`nodes` is given twice"),
            (
                "node = 3",
                "there is no argument `node`: give `nodes` or `backups`",
            ),
            ("nodes = \"three\"", "expected integer literal"),
            ("nodes", "expected `=`"),
            ("nodes = 3 backups = 1", "expected `,`"),
        ] {
            assert_eq!(refusal(arguments, TEST), why, "{arguments}");
        }
    }

    #[test]
    fn functions_that_are_no_tests_of_a_cluster_are_refused() {
        for (function, why) in [
            (
                "fn f(c: Local) {}",
                "a test with a cluster is an `async fn`",
            ),
            (
                "async fn f<T>(c: Local) {}",
                "a test has no generic parameters",
            ),
            (
                "async fn f() {}",
                "a test takes its cluster alone: `cluster: doyen::testkit::Local`",
            ),
            (
                "async fn f(c: Local, d: Local) {}",
                "a test takes its cluster alone: `cluster: doyen::testkit::Local`",
            ),
        ] {
            assert_eq!(refusal("", function), why, "{function}");
        }
        assert!(refusal("", "struct S;").contains("expected"));
    }

    #[test]
    fn arguments_attributes_and_the_result_arrive() {
        let function = quote! {
            #[ignore]
            async fn it_works(mut cluster: Local) -> Result<(), Error> { Ok(()) }
        };
        let expanded = expand(quote!(nodes = 5, backups = 2,), function).expect("a test");
        let expected = quote! {
            #[::core::prelude::v1::test]
            #[ignore]
            fn it_works() -> Result<(), Error> {
                async fn it_works(mut cluster: Local) -> Result<(), Error> { Ok(()) }
                ::doyen::testkit::run(
                    ::doyen::testkit::Local::builder().nodes(5u8).backups(2u8),
                    it_works
                )
            }
        };
        assert_eq!(expanded.to_string(), expected.to_string());
    }
}
